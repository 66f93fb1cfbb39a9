import { z } from "zod";
import { InputError } from "../../errors.ts";
import { ContainerLogPiece, TriggerLine } from "../../protocol/local/answers.ts";
import { ContainersReport } from "../../protocol/local/containers.ts";
import { containersExec } from "./containers-exec.ts";
import { containersList } from "./containers-list.ts";
import { containersLogs } from "./containers-logs.ts";
import { containersRun } from "./containers-run.ts";
import { standardStreams } from "../frame/raw-terminal.ts";
import type { VerbProgram } from "../frame/verb.ts";

/** Which options belong to which action. */
const OPTIONS: readonly (readonly [option: string, actions: readonly string[]])[] = [
  ["lines", ["logs"]],
  ["follow", ["logs"]],
  ["watch", ["list"]],
  ["detach", ["start"]],
];

export const containersVerb: VerbProgram = {
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
