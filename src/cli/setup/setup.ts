import { InputError } from "../../errors.ts";
import { SetupReport } from "../../protocol/local/setup.ts";
import type { VerbProgram } from "../frame/verb.ts";
import { runDialogue } from "./dialogue.ts";
import { runUnattended } from "./unattended.ts";

const ONLY_WITH_FILE = ["dry-run", "wait", "once", "json"] as const;

export const setupVerb: VerbProgram = {
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
