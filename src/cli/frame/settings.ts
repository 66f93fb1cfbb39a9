import { resolve } from "node:path";
import { InputError } from "../../errors.ts";
import type { GivenDirectories } from "../../lib/text/command-line.ts";
import { UPGRADE_PATHS } from "../../protocol/documents/release.ts";

/** Directories and output settings, from options, else the environment, else the defaults. */
export interface Settings {
  readonly stateDir: string;
  readonly runDir: string;
  /** The directories that options named, for hints to repeat. */
  readonly given: GivenDirectories;
  readonly isJson: boolean;
  /** Maximum silence of the agent, in milliseconds. */
  readonly timeoutMs: number;
}

const DEFAULT_STATE = "/var/lib/holdfast";
const DEFAULT_RUN = "/run/holdfast";
const DEFAULT_TIMEOUT_SECONDS = 10;

/**
 * Builds the settings from a verb's option values.
 * @throws {InputError} `usage` for an empty directory or a timeout that is not a number of seconds.
 */
export function settingsFrom(
  values: Readonly<Record<string, string | boolean>>,
  defaultTimeoutSeconds = DEFAULT_TIMEOUT_SECONDS,
): Settings {
  return {
    stateDir: directory("state", values["state"], process.env["HOLDFAST_STATE"], DEFAULT_STATE),
    runDir: directory("run", values["run"], process.env["HOLDFAST_RUN"], DEFAULT_RUN),
    given: {
      ...(typeof values["state"] === "string" ? { state: values["state"] } : {}),
      ...(typeof values["run"] === "string" ? { run: values["run"] } : {}),
    },
    isJson: values["json"] === true,
    timeoutMs: seconds(values["timeout"] ?? String(defaultTimeoutSeconds)) * 1000,
  };
}

/** Returns the directories of installed versions and of the package. */
export function versionDirectories(): { readonly path: string; readonly packagePath: string } {
  const { HOLDFAST_VERSIONS: path, HOLDFAST_LIB: packagePath } = process.env;
  return { path: path || UPGRADE_PATHS.versions, packagePath: packagePath || UPGRADE_PATHS.package };
}

/** Returns the agent token of the environment. */
export function authToken(): string | undefined {
  return process.env["AUTH_TOKEN"]?.trim() || undefined;
}

/** Reports whether the user asked for output without colours (https://no-color.org). */
export function isColorUnwanted(): boolean {
  return (process.env["NO_COLOR"] ?? "") !== "" || process.env["TERM"] === "dumb";
}

function directory(
  name: string,
  option: string | boolean | undefined,
  environment: string | undefined,
  fallback: string,
): string {
  if (option === "") throw new InputError("usage", `--${name} needs a directory`);
  // An empty variable counts as unset, as with XDG directories.
  return resolve(typeof option === "string" ? option : environment || fallback);
}

function seconds(text: string | boolean): number {
  const value = typeof text === "string" && /^\d{1,5}(\.\d{1,3})?$/.test(text) ? Number(text) : 0;
  if (value <= 0) throw new InputError("usage", `--timeout needs a number of seconds above 0, not ${String(text)}`);
  return value;
}
