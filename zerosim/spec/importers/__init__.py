"""Importers: what a tool prints of a machine becomes a topology file.

`nvidia-smi topo -m` and NCCL topology XML are read into a `Seen` (what stands there), the catalogue fills in the rest
(`draft`), and `topology_text` writes YAML in which each assumption is a comment. Which tool a text is of is seen by
its content. Rule: text in, text out; no file is opened or written here.
"""

from zerosim.spec.importers.importing import STANDARD_INPUT, Imported, import_topology, read_seen

__all__ = ["STANDARD_INPUT", "Imported", "import_topology", "read_seen"]
