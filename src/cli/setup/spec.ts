import { DIRECTORIES, JSON_OPTION, TIMEOUT } from "../frame/verb-options.ts";
import type { Verb } from "../frame/verb.ts";

/** `holdfast setup`, as the command line sees it. */
export const setupVerbSpec: Verb = {
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
    "dry-run": { help: "with --file: only say what would be done" },
    wait: { help: "with --file: until the node has a session, or the timeout is over" },
    once: { help: "with --file: nothing when the node is registered; a used license is erased from the file" },
    config: { value: "FILE", help: "local settings (/etc/holdfast/agent.json)", complete: "file" },
    ...JSON_OPTION,
    ...TIMEOUT,
    ...DIRECTORIES,
  },
  exits: ["ok", "failed", "usage", "unregistered", "degraded", "timeout", "interrupted"],
  example: "holdfast setup --file /etc/holdfast/setup.json --once",
  timeoutSeconds: 60,
  load: async () => (await import("./setup.ts")).setupVerb,
};
