import type { OptionSpec } from "./verb.ts";

/** Options of every verb: directories and help. */
export const DIRECTORIES = {
  state: { value: "DIR", help: "state directory (HOLDFAST_STATE, else /var/lib/holdfast)", complete: "directory" },
  run: { value: "DIR", help: "run directory (HOLDFAST_RUN, else /run/holdfast)", complete: "directory" },
  help: { short: "h", help: "show this help" },
} as const satisfies Record<string, OptionSpec>;
export const JSON_OPTION = {
  json: { help: "print JSON; 'holdfast help --json-schema <verb>' prints its schema" },
} as const;
const TIMEOUT = { timeout: { value: "SECONDS", help: "maximum silence of the agent" } } as const;
export const WATCH = { watch: { short: "w", help: "show it again every second until Ctrl-C" } } as const;
export const COMMON = { ...JSON_OPTION, ...TIMEOUT, ...DIRECTORIES } as const;
export const CONFIG = {
  config: { value: "FILE", help: "local settings (/etc/holdfast/agent.json, if it exists)", complete: "file" },
} as const satisfies Record<string, OptionSpec>;
