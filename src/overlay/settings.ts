import { parseArgs } from "node:util";
import { InputError, toError } from "../errors.ts";
import { writesToJournal } from "../host/process/service-manager.ts";
import { MANAGED_OVERLAY } from "../protocol/overlay/overlay.ts";

/** Whether the log goes to the journal. */
export function isLogInJournal(): boolean {
  return writesToJournal(process.env);
}

/** Whether a systemd unit runs this program, and restarts it. */
export function isUnit(): boolean {
  return process.env["HOLDFAST_UNIT"] !== undefined;
}

/**
 * Reads the command line of `holdfast overlay`.
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
