import { InputError } from "../errors.ts";
import { ContainerLogPiece } from "../protocol/local-api.ts";
import { containersExec } from "./containers-exec.ts";
import { containersLogs } from "./containers-logs.ts";
import { standardStreams } from "./raw-terminal.ts";
import type { VerbProgram } from "./verb.ts";

export const containersVerb: VerbProgram = {
  output: ContainerLogPiece,
  async run(call) {
    const [action = "", container = "", ...command] = call.positionals;
    const isOfLogs = call.values["lines"] !== undefined || call.values["follow"] !== undefined;
    switch (action) {
      case "logs":
        if (command.length > 0) throw new InputError("usage", "containers logs takes no command");
        return containersLogs(call, container);
      case "exec":
        if (isOfLogs) throw new InputError("usage", "containers exec takes neither --lines nor --follow");
        return containersExec(call, { container, command }, standardStreams());
      default:
        throw new InputError("usage", `containers takes logs or exec, not '${action}'`);
    }
  },
};
