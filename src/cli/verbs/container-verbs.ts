import { DIRECTORIES, JSON_OPTION, TIMEOUT, WATCH } from "../frame/verb-options.ts";
import type { Verb } from "../frame/verb.ts";

const ACTIONS = ["list", "start", "stop", "restart", "logs", "exec"] as const;

/** The verbs that look at and act on the containers of this node. */
export const containerVerbs: readonly Verb[] = [
  {
    name: "containers",
    summary: "show the containers of this node, start and stop them, see what they write, run a command in one",
    about:
      "Without an action it lists every container of the configuration in force, which needs no root; with --watch every second. 'stop' holds until the " +
      "container is started or its definition changes. 'start' of one on demand shows the pull and then what it writes, and ends it with " +
      "this command. 'logs' shows the current run, with --json an object for each piece. 'exec' opens a shell in a running container, or runs the " +
      "command after --, on a terminal that dies with this command; it exits with the command's own exit code.",
    arguments: [
      {
        name: "action",
        isRequired: false,
        help: "list (by default), start, stop, restart, logs or exec",
        complete: ACTIONS,
      },
      { name: "container", isRequired: false, help: "its name in the configuration", complete: "none" },
      { name: "command", isRequired: false, isRest: true, help: "for exec: what to run", complete: "none" },
    ],
    options: {
      lines: { short: "n", value: "N", help: "for logs: how many lines back (100)" },
      detach: { help: "for start: only start it, and show nothing" },
      follow: { short: "f", help: "for logs: go on with new output until Ctrl-C" },
      watch: { short: "w", help: "for list: show it again every second until Ctrl-C" },
      ...JSON_OPTION,
      ...TIMEOUT,
      ...DIRECTORIES,
    },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout", "interrupted"],
    example: "holdfast containers exec web -- ls /",
    timeoutSeconds: 30,
    load: async () => (await import("./containers.ts")).containersVerb,
  },
  {
    name: "volumes",
    summary: "show the volumes of this node's containers, where they are and who uses them",
    arguments: [],
    options: { ...WATCH, ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout"],
    example: "holdfast volumes",
    load: async () => (await import("./volumes.ts")).volumesVerb,
  },
  {
    name: "images",
    summary: "show the images that the container engine of this node has",
    about: "Needs root.",
    arguments: [],
    options: { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES },
    exits: ["ok", "failed", "usage", "unreachable", "timeout"],
    example: "holdfast images",
    load: async () => (await import("./images.ts")).imagesVerb,
  },
];
