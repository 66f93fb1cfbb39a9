import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { ContainerLogPiece, TriggerLine } from "../../../protocol/local/answers.ts";
import { ContainersReport } from "../../../protocol/local/containers.ts";
import { containersExec } from "./exec.ts";
import { containersList } from "./list.ts";
import { containersLogs } from "./logs.ts";
import { containersRun } from "./run.ts";
import { standardStreams } from "../../frame/raw-terminal.ts";
import type { Verb } from "../../frame/verb.ts";
import { COMMON } from "../../frame/verb-options.ts";

/** Options of each action. */
const OPTIONS: readonly (readonly [option: string, actions: readonly string[]])[] = [
  ["lines", ["logs"]],
  ["follow", ["logs"]],
  ["watch", ["list"]],
  ["detach", ["start"]],
];

export const containersVerb: Verb = {
  name: "containers",
  summary: "show the containers of this node, start and stop them, show their output, run a command in one",
  about:
    "Without an action it lists every container of the applied configuration, which needs no root; with --watch every second. 'stop' lasts until the " +
    "container is started or its definition changes. 'start' of one on demand shows the pull and then what it writes, and ends it with " +
    "this command. 'logs' shows the current run, with --json an object for each piece. 'exec' opens a shell in a running container, or runs the " +
    "command after --, on a terminal that dies with this command; it exits with the command's own exit code.",
  arguments: [
    {
      name: "action",
      isRequired: false,
      help: "list (by default), start, stop, restart, logs or exec",
      complete: ["list", "start", "stop", "restart", "logs", "exec"],
    },
    { name: "container", isRequired: false, help: "its name in the configuration", complete: "none" },
    { name: "command", isRequired: false, isRest: true, help: "for exec: what to run", complete: "none" },
  ],
  options: {
    lines: { short: "n", value: "N", help: "for logs: how many lines back (100)" },
    detach: { help: "for start: only start it, and show nothing" },
    follow: { short: "f", help: "for logs: follow new output until Ctrl-C" },
    watch: { short: "w", help: "for list: show it again every second until Ctrl-C" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "degraded", "timeout", "interrupted"],
  example: "holdfast containers exec web -- ls /",
  timeoutSeconds: 30,
  output: z.union([ContainersReport, ContainerLogPiece, TriggerLine]),
  async run(call) {
    const [action = "list", container, ...command] = call.positionals;
    for (const [option, actions] of OPTIONS) {
      if (call.values[option] === undefined || actions.includes(action)) continue;
      throw new InputError("usage", `containers ${action} does not take --${option}`);
    }
    if (command.length > 0 && action !== "exec") {
      throw new InputError("usage", `containers ${action} takes no command`);
    }
    if (action === "list") {
      if (container !== undefined) throw new InputError("usage", "containers list takes no name");
      return containersList(call);
    }
    if (!["logs", "exec", "start", "stop", "restart"].includes(action)) {
      throw new InputError("usage", `containers takes list, start, stop, restart, logs or exec, not '${action}'`);
    }
    if (container === undefined) throw new InputError("usage", `containers ${action} needs the name of a container`);
    switch (action) {
      case "logs":
        return containersLogs(call, container);
      case "exec":
        return containersExec(call, { container, command }, standardStreams());
      default:
        return containersRun(call, action, container);
    }
  },
};
