// Questions to the server, each under the name of who asks and with a number: a higher one of a name ends those below.
(() => {
"use strict";

const page = crypto.randomUUID();
const UNREACHABLE = "zerosim play does not answer: it has ended, or the machine is very busy.";

/** What is wrong, as the server says it of a knob; here of none. */
const wrong = (text) => ({ wrong: [{ control: "", text }] });

/** The answer; where there is none, {wrong: [...]}, or {superseded: true} where a newer question has come. */
const answered = async (told) => {
  if (told.headers.get("Content-Type") === "application/json") return told.json();
  if (!told.ok) return wrong(`zerosim play failed (${told.status}): ${(await told.text()).slice(0, 200)}`);
  return { file: await told.blob() };
};

/** One question of {start, state, number}; never throws. One that `signal` ends is superseded. */
const ask = async (address, question, name = "", signal = undefined) => {
  const body = JSON.stringify({ ...question, page: page + name });
  const headers = { "Content-Type": "application/json" };
  try {
    return await answered(await fetch(address, { method: "POST", headers, body, signal }));
  } catch (error) {
    return error.name === "AbortError" ? { superseded: true } : wrong(UNREACHABLE);
  }
};

Object.assign(window.play, { ask });
})();
