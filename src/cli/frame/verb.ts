import type { ActivationRequest, ActivationStep } from "../../protocol/channel/activation.ts";
import type { z } from "zod";
import type { Clock } from "../../host/clock.ts";
import type { NodeIdentity } from "../../protocol/documents/claims.ts";
import type { LeftDocument, LeftState } from "../../protocol/local/left-state.ts";
import type { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { ReleaseCheck, UpgradeAnswer, UpgradeOrder } from "../../protocol/documents/release.ts";
import type { ExitClass } from "./exit-codes.ts";
import type { Settings } from "./settings.ts";
import type { Terminal } from "./terminal.ts";

/** Completion of a value: files, directories, nothing, or these words. */
export type Completion = "file" | "directory" | "none" | readonly string[];

export interface OptionSpec {
  readonly short?: string;
  /** Name of the value in the help; an option without one is a switch. */
  readonly value?: string;
  readonly help: string;
  readonly complete?: Completion;
}

export interface ArgumentSpec {
  readonly name: string;
  readonly isRequired: boolean;
  /** Whether it takes all remaining words; only the last argument may. */
  readonly isRest?: true;
  readonly help: string;
  readonly complete: Completion;
}

/** Declares a verb: help, parsing and completion all come from here. */
export interface VerbSpec {
  readonly name: string;
  readonly summary: string;
  /** More sentences of help, if the summary does not say enough. */
  readonly about?: string;
  readonly arguments: readonly ArgumentSpec[];
  readonly options: Readonly<Record<string, OptionSpec>>;
  readonly exits: readonly ExitClass[];
  readonly example: string;
  /** Seconds to wait for the agent's answer; 10 by default. */
  readonly timeoutSeconds?: number;
}

export interface Verb extends VerbSpec {
  /** Schema of each object printed with `--json`; undefined if the verb prints none. */
  readonly output: z.ZodType | undefined;
  /** Returns the exit class; a number is the exit code of a command that the verb ran for the user. */
  run(call: Call): Promise<ExitClass | number>;
}

/** Loads each verb by its name. A verb that starts another program, such as `agent`, is only a declaration. */
export type VerbList = Readonly<Record<string, () => Promise<VerbSpec | Verb>>>;

/** One run of a verb. */
export interface Call {
  readonly values: Readonly<Record<string, string | boolean>>;
  readonly positionals: readonly string[];
  readonly settings: Settings;
  readonly terminal: Terminal;
  readonly clock: Clock;
  readonly offline: Offline;
  /** Fires on Ctrl-C. */
  readonly signal: AbortSignal;
}

/** Registers the node of a state directory while no agent runs. */
export type RegisterOffline = (stateDir: string, license: string, signal: AbortSignal) => Promise<NodeIdentity>;
/** Asks once for the license of the machine of a state directory while no agent runs. */
export type ActivateOffline = (
  stateDir: string,
  request: ActivationRequest,
  signal: AbortSignal,
) => Promise<ActivationStep>;
/** Resets the node of a state directory while no agent runs. Returns what was removed, and what could not be. */
export type ResetOffline = (
  where: { readonly stateDir: string; readonly runDir: string },
  order: { readonly factory: boolean },
) => Promise<{ readonly removed: readonly string[]; readonly overlayEnded: boolean; readonly left: readonly string[] }>;
/** Reads the node's identity; undefined if it is not registered or cannot be read. */
export type ReadIdentity = (stateDir: string) => Promise<NodeIdentity | undefined>;

/** Reads the targets that the node must reach, as its agent last stored them. */
export type ReadTargets = (stateDir: string) => Promise<NetworkTargets>;

/** Reads and changes the local settings, `agent.json`. */
export interface LocalSettings {
  /** @throws {InputError} `bad-settings` */
  read(path: string): Promise<JsonObject>;
  /** Replaces members of the settings; null removes one. Returns the names of changed members. @throws {InputError} `bad-settings` */
  change(path: string, changes: JsonObject, options?: { readonly isDry?: boolean }): Promise<readonly string[]>;
}
/** Requests an upgrade without an agent. */
export type AskUpgradeOffline = (
  where: { readonly stateDir: string; readonly runDir: string },
  order: UpgradeOrder,
) => Promise<UpgradeAnswer>;

/** Checks what a manifest offers to this machine; without `from`, the manifest at the configured location. */
export type CheckReleaseOffline = (
  stateDir: string,
  asked: { readonly from: string | undefined; readonly isForced: boolean },
  signal: AbortSignal,
) => Promise<ReleaseCheck>;

/**
 * Copies a release from files of this machine to where the upgrade's program can read it, and returns the place;
 * undefined where nothing is upgraded. What would be refused is refused at once.
 */
export type HandOverRelease = (
  stateDir: string,
  asked: { readonly from: string; readonly isForced: boolean },
  signal: AbortSignal,
) => Promise<{ readonly from: string; release(): void; discard(): Promise<void> } | undefined>;
/** Reads the state directory and the settings file, without changes. */
export type InspectState = (stateDir: string, config: string | undefined, runDir?: string) => Promise<LeftState>;

/** Selects the state that may leave the machine in a bundle. */
export interface ForBundle {
  readSecrets(stateDir: string, config: string | undefined): Promise<readonly string[]>;
  shownSettings(config: string | undefined): Promise<unknown>;
  shownDocument(document: LeftDocument): { readonly shown: unknown };
}

/** Operations on a state directory without its agent, loaded when needed. */
export interface Offline {
  readonly register?: () => Promise<RegisterOffline>;
  readonly activate?: () => Promise<ActivateOffline>;
  readonly reset?: () => Promise<ResetOffline>;
  readonly readIdentity?: () => Promise<ReadIdentity>;
  readonly readTargets?: () => Promise<ReadTargets>;
  readonly localSettings?: () => Promise<LocalSettings>;
  readonly askUpgrade?: () => Promise<AskUpgradeOffline>;
  readonly checkRelease?: () => Promise<CheckReleaseOffline>;
  readonly handOverRelease?: () => Promise<HandOverRelease>;
  readonly inspectState?: () => Promise<InspectState>;
  readonly forBundle?: () => Promise<ForBundle>;
}
