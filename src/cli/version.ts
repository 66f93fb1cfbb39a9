import { z } from "zod";
import { buildInfo } from "../lib/build-info.ts";
import { safeJson } from "../lib/terminal-text.ts";
import type { VerbProgram } from "./verb.ts";

const VersionOutput = z.object({
  schema: z.literal(1),
  version: z.string(),
  build: z.string(),
  /** Of the runtime. */
  node: z.string(),
});

export const versionVerb: VerbProgram = {
  output: VersionOutput,
  run({ settings, terminal }) {
    const { version, build } = buildInfo;
    const output: z.infer<typeof VersionOutput> = { schema: 1, version, build, node: process.version };
    terminal.out(
      settings.isJson ? `${safeJson(output)}\n` : `holdfast ${version} (${build}) on Node ${process.version}\n`,
    );
    return Promise.resolve("ok");
  },
};
