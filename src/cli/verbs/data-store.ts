import { z } from "zod";
import { InputError } from "../../errors.ts";
import { plainLine, safeJson } from "../../lib/text/terminal-text.ts";
import { DataStoreListing, DataStoreTask, DataStoreTasks, TaskStarted } from "../../protocol/triggers/data-store.ts";
import { askDataStore } from "./data-store-calls.ts";
import { dataStoreList } from "./data-store-list.ts";
import { dataStoreTasks } from "./data-store-tasks.ts";
import { dataStoreTransfer } from "./data-store-transfer.ts";
import { downloadOf, uploadOf } from "./data-store-uris.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import type { Call, VerbProgram } from "../frame/verb.ts";

const Done = z.looseObject({});

/** Which options belong to which action. */
const OPTIONS: readonly (readonly [option: string, actions: readonly string[]])[] = [
  ["detach", ["get", "put"]],
  ["sha256", ["get"]],
  ["hash", ["get"]],
  ["multipart", ["put"]],
  ["watch", ["tasks"]],
];
/** How many arguments each action needs and takes at most. */
const COUNTS: Readonly<Record<string, readonly [least: number, most: number, what: string]>> = {
  ls: [0, 1, "takes a path at most"],
  rm: [1, 1, "needs one path"],
  mkdir: [1, 1, "needs one path"],
  get: [1, 2, "needs a URI, and takes a path"],
  put: [2, 2, "needs a path and a URI"],
  tasks: [0, 2, "takes cancel or clear, and an ID"],
};

export const dataStoreVerb: VerbProgram = {
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
