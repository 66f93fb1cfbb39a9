import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { plainLine, safeJson } from "../../../lib/text/terminal-text.ts";
import { DataStoreListing, DataStoreTask, DataStoreTasks, TaskStarted } from "../../../protocol/triggers/data-store.ts";
import { askDataStore } from "./calls.ts";
import { dataStoreList } from "./list.ts";
import { dataStoreTasks } from "./tasks.ts";
import { dataStoreTransfer } from "./transfer.ts";
import { downloadOf, uploadOf } from "./uris.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { COMMON } from "../../frame/verb-options.ts";

const Done = z.looseObject({});

/** Options of each action. */
const OPTIONS: readonly (readonly [option: string, actions: readonly string[]])[] = [
  ["detach", ["get", "put"]],
  ["sha256", ["get"]],
  ["hash", ["get"]],
  ["multipart", ["put"]],
  ["watch", ["tasks"]],
];
/** Minimum and maximum number of arguments of each action. */
const COUNTS: Readonly<Record<string, readonly [least: number, most: number, what: string]>> = {
  ls: [0, 1, "takes a path at most"],
  rm: [1, 1, "needs one path"],
  mkdir: [1, 1, "needs one path"],
  get: [1, 2, "needs a URI, and takes a path"],
  put: [2, 2, "needs a path and a URI"],
  tasks: [0, 2, "takes cancel or clear, and an ID"],
};

export const dataStoreVerb: Verb = {
  name: "data-store",
  summary: "show the files of this node's data store, move them in and out, and follow the transfers",
  about:
    "Paths are below the root of the data store, with or without a leading slash. 'ls [PATH]' shows a tree, 'rm PATH' removes a file or a " +
    "directory with its content, 'mkdir PATH' creates directories. 'get URI [PATH]' and 'put PATH URI' take http, https and s3 " +
    "addresses; a PATH or s3 URI that ends in a slash is a directory. They wait for the end of the transfer, which Ctrl-C cancels; a " +
    "second Ctrl-C leaves at once. 'tasks' lists transfers, 'tasks cancel ID' ends one that runs, 'tasks clear ID' forgets one that has " +
    "ended; the first characters of an ID are enough. With --json each line is one object.",
  arguments: [
    {
      name: "action",
      isRequired: false,
      help: "ls (by default), rm, mkdir, get, put or tasks",
      complete: ["ls", "rm", "mkdir", "get", "put", "tasks"],
    },
    { name: "first", isRequired: false, help: "a PATH, a URI, cancel or clear", complete: ["cancel", "clear"] },
    { name: "second", isRequired: false, help: "a PATH, a URI or the ID of a task", complete: "none" },
  ],
  options: {
    detach: { help: "for get and put: print the ID of the task, and do not wait" },
    sha256: { value: "HEX", help: "for get: the SHA-256 that the file must have", complete: "none" },
    hash: { value: "HEX", help: "for get: the MD5, SHA1 or SHA-256 it must have, by its length", complete: "none" },
    multipart: { help: "for put over HTTP: as multipart/form-data" },
    watch: { short: "w", help: "for tasks: show them again every second until Ctrl-C" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
  example: "holdfast data-store get https://files.example/debian.iso isos/",
  timeoutSeconds: 30,
  output: z.union([DataStoreListing, DataStoreTasks, DataStoreTask, TaskStarted, z.strictObject({})]),
  async run(call) {
    const [action = "ls", first = "", second] = call.positionals;
    const counts = Object.hasOwn(COUNTS, action) ? COUNTS[action] : undefined;
    if (counts === undefined) {
      throw new InputError("usage", `data-store takes ls, rm, mkdir, get, put or tasks, not '${action}'`);
    }
    const [least, most, what] = counts;
    const given = Math.max(0, call.positionals.length - 1);
    if (given > most || given < least) throw new InputError("usage", `data-store ${action} ${what}`);
    for (const [option, actions] of OPTIONS) {
      if (call.values[option] === undefined || actions.includes(action)) continue;
      throw new InputError("usage", `data-store ${action} does not take --${option}`);
    }
    switch (action) {
      case "rm":
        return change(call, { action: "DELETE", filename: first }, `${first}: removed`);
      case "mkdir":
        return change(call, { action: "MKDIR", filename: first }, `${first}: made`);
      case "get":
        return dataStoreTransfer(call, downloadOf(first, second, call.values));
      case "put":
        return dataStoreTransfer(call, uploadOf(first, second ?? "", call.values["multipart"] === true));
      case "tasks":
        return dataStoreTasks(call, first, second);
      default:
        return dataStoreList(call, call.positionals[1]);
    }
  },
};

async function change(call: Call, body: object, done: string): Promise<ExitClass> {
  await askDataStore(call, body, Done);
  call.terminal.out(call.settings.isJson ? `${safeJson({})}\n` : `${plainLine(done)}\n`);
  return "ok";
}
