import { InputError } from "../../errors.ts";
import { SetupReport } from "../../protocol/local/setup.ts";
import type { Verb } from "../frame/verb.ts";
import { runDialogue } from "../setup/dialogue.ts";
import { runUnattended } from "../setup/unattended.ts";
import { COMMON } from "../frame/verb-options.ts";

const ONLY_WITH_FILE = ["dry-run", "wait", "once", "json"] as const;

export const setupVerb: Verb = {
  name: "setup",
  summary: "set this machine up: network, proxy, time, license, checks",
  about:
    "A dialogue for a person at the console, which shows what is set and can be repeated; Ctrl-C changes nothing more. With --file it asks nothing: " +
    "the file is JSON with network, proxy, noProxy, license or licenseFile, profile and settings, all optional. Repeating it does no harm.",
  arguments: [],
  options: {
    file: {
      value: "FILE",
      help: "take everything from this file and ask nothing; - for standard input",
      complete: "file",
    },
    "dry-run": { help: "with --file: only show what would be done" },
    wait: { help: "with --file: until the node has a session, or the timeout is over" },
    once: { help: "with --file: nothing when the node is registered; a used license is erased from the file" },
    config: { value: "FILE", help: "local settings (/etc/holdfast/agent.json)", complete: "file" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unregistered", "degraded", "timeout", "interrupted"],
  example: "holdfast setup --file /etc/holdfast/setup.json --once",
  timeoutSeconds: 60,
  output: SetupReport,
  async run(call) {
    const { file } = call.values;
    if (typeof file === "string") return runUnattended(call, file);
    const stray = ONLY_WITH_FILE.find((name) => call.values[name] === true);
    if (stray !== undefined)
      throw new InputError("usage", `--${stray} is for --file: without a file, setup is a dialogue`);
    return runDialogue(call);
  },
};
