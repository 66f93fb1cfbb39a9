import { z } from "zod";
import { boundedMap, Text128, Text4096 } from "./values.ts";

/** A shadow value: text by default; numbers for times, versions and quantities; an object for `features` alone. */
export const ShadowValue = z.union([
  Text4096,
  z.number(),
  z.boolean(),
  z.record(Text128, z.union([Text4096, z.number(), z.boolean()])),
]);
export type ShadowValue = z.infer<typeof ShadowValue>;

const MAX_TEXT = 4096;

function isScalar(value: unknown): boolean {
  if (typeof value === "string") return value.length <= MAX_TEXT;
  return typeof value === "boolean" || Number.isFinite(value);
}

/**
 * Flat map of reported keys; a key may contain dots, and an interface name inside it too. More names than this do not fit into the largest
 * shadow.
 */
export const ShadowMap = boundedMap(ShadowValue, { minName: 1, maxName: 128, maxNames: 16_384, isPlain: isScalar });
export type ShadowMap = z.infer<typeof ShadowMap>;

/** Largest reported shadow, as JSON. */
export const SHADOW_MAX_BYTES = 64 * 1024;

/** Keys about the applied configuration, with type and meaning; `<section>` and `<name>` are placeholders. */
export const configShadowKeys: readonly (readonly [key: string, type: string, meaning: string])[] = [
  ["document.<name>.version", "number", "version in force of the `node`, `cluster` or `domain` document"],
  ["document.<name>.refused", "number", "the newer version that was rolled back; absent otherwise"],
  ["config.<section>.state", "text", "`converged`, `rejected`, `failed`, `diverged`, `pending` or `unsupported`"],
  ["config.<section>.since", "number", "Unix seconds since when the state is what it is"],
  ["config.<section>.version", "number", "version of the node's document that this answers"],
  ["config.<section>.version.<name>", "number", "the same of the `cluster` and `domain` documents"],
  ["config.<section>.reason", "text", "why not, as `code: message`; absent when nothing is wrong"],
  ["config.<section>.reason.since", "number", "Unix seconds since when that is so"],
  ["config.<section>.issues", "number", "how many items have issues; absent when none has"],
  ["config.<section>.notices", "number", "how many parts are in force otherwise than written; absent when none is"],
  [
    "config.<section>.item.<path>",
    "text",
    "`code: message` of an issue or notice; the first 16 of a section, 48 in all",
  ],
  [
    "config.<section>.drift.count",
    "number",
    "how often something else changed it and it was put back, since the agent started",
  ],
  ["config.<section>.drift.last", "number", "Unix seconds of the last time"],
  ["config.<section>.drift.what", "text", "the first steps that put it back"],
  [
    "config.<section>.reported.<key>",
    "text or number",
    "what the section says of itself, 64 at most; `reported.more` counts the rest",
  ],
];

/** Keys about the state of containers; `<name>` is a container's. */
export const containerShadowKeys: readonly (readonly [key: string, type: string, meaning: string])[] = [
  ["container.<name>.state", "text", "`INITIALIZING`, `RUNNING` or `STOPPED`"],
  ["container.<name>.health", "text", "`healthy` or `unhealthy` by its own check; absent without one"],
  ["container.<name>.restarts", "number", "exits of its process since the agent knows it; absent when there was none"],
  ["container.more", "number", "how many containers found no room: 256 are shown, and 16 KiB"],
];

/** Keys about the state of the last upgrade; all absent before the first. */
export const upgradeShadowKeys: readonly (readonly [key: string, type: string, meaning: string])[] = [
  ["node.upgrade.state", "text", "`IN_PROGRESS`, `STAGED`, `COMPLETED` or `FAILED`"],
  [
    "node.upgrade.completed.tstamp",
    "number",
    "Unix seconds at which the last upgrade ended, well or not; while one is in progress, that of the one before",
  ],
  ["node.upgrade.from", "text", "version that it began from"],
  ["node.upgrade.version", "text", "version that it leads to; absent until its manifest has been verified"],
  [
    "node.upgrade.step",
    "text",
    "`fetching`, `verifying`, `unpacking`, `testing`, `switching`, `judging`, `comparing` or `going-back`; only while it is in progress",
  ],
  ["node.upgrade.reason", "text", "why it failed, as `code: message`; absent otherwise"],
  ["node.upgrade.trial", "text", "`true` while the version that runs has not proven itself; absent otherwise"],
];
