"""What a person sees of an answer: a terminal screen, tables, a picture, a profiler trace.

Rules: a report shows what the views computed and computes nothing but shares and pixels. Nothing is printed here:
functions give text, or write the one file they were told to.
"""
