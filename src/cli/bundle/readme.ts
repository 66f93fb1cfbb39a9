import { sizeText } from "../../lib/text/size-text.ts";
import { byReason, type MissingPart, type Part } from "./part.ts";

export interface ReadmeInput {
  readonly madeAt: string;
  readonly version: string;
  readonly isRoot: boolean;
  readonly parts: readonly Part[];
  readonly missing: readonly MissingPart[];
}

const NEVER = [
  "private keys, the identity and its copies; licenses, tokens and tickets",
  "values of containers' variables, command lines of containers, output of containers",
  "pre-shared keys, passphrases and every field of the configuration that is not known to be harmless",
  "users, passwords and queries in addresses (of proxies, of uploads)",
  "credentials of object storage and of registries; keys of volumes",
  "state.db, which holds the journal of trigger events and records on their way; the data store and volumes",
  "the arguments and environment of processes; contents of connections",
];

/** Returns the README of a bundle. Pure. */
export function readme({ madeAt, version, isRoot, parts, missing }: ReadmeInput): string {
  const lines = parts.map(({ name, about, text, cutBytes }) => {
    const cut = cutBytes === 0 ? "" : `; its first ${sizeText(cutBytes)} were cut off for want of room`;
    return `${name} (${sizeText(Buffer.byteLength(text))})\n    ${about}${cut}`;
  });
  return `Holdfast: what a node looked like

Made at ${madeAt} by holdfast ${version}, ${isRoot ? "as root" : "without root, so that much could not be seen"}.
All of it is text. It tells names, addresses and versions of this node and its neighbours: give it to nobody who must not know them.

Where to begin
--------------
doctor.json says what is wrong and what to do: look for "fail", then for "warn".
agent/why.json and agent/plan.json say what of the configuration is not in force, and why.
agent/log.jsonl and logs/ say what happened when. Where agent/ is missing, no agent answered: see below.

What is in it
-------------
${lines.join("\n")}

What could not be had
---------------------
${
  missing.length === 0
    ? "Nothing is missing."
    : byReason(missing)
        .map(({ names, reason }) => `${names.join("\n")}\n    ${reason}`)
        .join("\n")
}

What is left out on purpose
---------------------------
${NEVER.map((what) => `- ${what}`).join("\n")}

Configuration is shown field by field, and only fields that are known to hold no secret; everything that was left out of it, the node's keys
and the passwords of its settings are taken out of every file as well, in whatever form they are written, and so is what looks like a
secret. In their place stands "[left out]". Look through it before you pass it on all the same: nobody can know what others write into logs.
`;
}
