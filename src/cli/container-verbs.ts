import { DIRECTORIES, JSON_OPTION, TIMEOUT } from "./verb-options.ts";
import type { Verb } from "./verb.ts";

/** The verbs that look at and act on the containers of this node. */
export const containerVerbs: readonly Verb[] = [
  {
    name: "containers",
    summary: "show what a container of this node writes, or run a command in it",
    about:
      "'logs' shows the current run, with --json an object for each piece. 'exec' opens a shell in a running container, or runs the command after --, on a " +
      "terminal that dies with this command; it exits with the command's own exit code. Needs root.",
    arguments: [
      { name: "action", isRequired: true, help: "logs or exec", complete: ["logs", "exec"] },
      { name: "container", isRequired: true, help: "its name in the configuration", complete: "none" },
      { name: "command", isRequired: false, isRest: true, help: "for exec: what to run", complete: "none" },
    ],
    options: {
      lines: { short: "n", value: "N", help: "for logs: how many lines back (100)" },
      follow: { short: "f", help: "for logs: go on with new output until Ctrl-C" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
    example: "holdfast containers exec web -- ls /",
    timeoutSeconds: 30,
    load: async () => (await import("./containers.ts")).containersVerb,
  },
];
