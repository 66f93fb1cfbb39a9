import { parseArgs } from "node:util";
import { InputError, toError } from "../errors.ts";
import { writesToJournal } from "../host/process/service-manager.ts";
import { MANAGED_OVERLAY } from "../protocol/overlay/overlay.ts";

/** Reports whether the log goes to the journal. */
export function isLogInJournal(): boolean {
  return writesToJournal(process.env);
}

/** Reports whether a systemd unit runs and restarts this program. */
export function isUnit(): boolean {
  return process.env["HOLDFAST_UNIT"] !== undefined;
}

/**
 * Parses the command line of `holdfast overlay`.
 * @throws {InputError} `usage`.
 */
export function readOptions(argv: readonly string[]): { stateDir: string; runDir: string; isSuccessor: boolean } {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        state: { type: "string", default: MANAGED_OVERLAY.stateDir },
        run: { type: "string", default: MANAGED_OVERLAY.runDir },
        successor: { type: "boolean", default: false },
      },
      strict: true,
      allowPositionals: false,
    });
    return { stateDir: values.state, runDir: values.run, isSuccessor: values.successor };
  } catch (error) {
    throw new InputError("usage", toError(error).message, { cause: error });
  }
}
