import { shorten } from "../../lib/text/shorten.ts";
import { whyOf, type Standing } from "../reconcile/section-status.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import type { ShadowMap, ShadowValue } from "../../protocol/values/shadow.ts";
import type { Desired } from "../shadow/desired.ts";

/** The inputs of the shadow facts about the configuration. */
export interface ConfigReadings {
  readonly desired: Desired;
  readonly standings: readonly Standing[];
  /** Desired sections that this version does not apply. */
  readonly unsupported: readonly string[];
}

const MAX_ITEMS = 16;
const MAX_ALL_ITEMS = 48;
const MAX_REPORTED = 64;
const MAX_DEPTH = 4;
const MAX_KEY = 128;
const MAX_TEXT = 512;

/** Keys that the platform reads without the prefix of a section. */
const PLATFORM_KEYS: ReadonlySet<string> = new Set([
  "cluster.healthy",
  "cluster.master",
  "gateway.udp.enabled",
  "kvm-enabled",
  "netplan.saved",
  "ztna-enabled",
]);
const TUNNEL_STATE = /^tunnel\..+\.state$/;

/**
 * Returns the shadow keys of the documents (`document.<name>.*`) and of each section (`config.<section>.*`): its state, the versions it
 * applies, the reason, the first items with issues, drift, and the section's own report. Bounded. Pure.
 */
export function configFacts({ desired, standings, unsupported }: ConfigReadings): ShadowMap {
  const facts = new Map<string, ShadowValue>();
  const put = (key: string, value: ShadowValue | undefined): void => {
    if (value !== undefined && key.length <= MAX_KEY)
      facts.set(key, typeof value === "string" ? shorten(value, MAX_TEXT) : value);
  };
  for (const name of DocumentName.options) {
    put(`document.${name}.version`, desired[name]?.version);
    put(`document.${name}.refused`, desired[name]?.refused?.version);
  }
  for (const section of unsupported) put(`config.${section}.state`, "unsupported");
  let itemsLeft = MAX_ALL_ITEMS;
  for (const standing of standings) {
    const { section, outcome, version, since, issues, notices, drift, reported } = standing;
    const at = `config.${section}`;
    const { node, ...others } = version;
    put(`${at}.state`, outcome.state);
    put(`${at}.since`, seconds(since));
    put(`${at}.version`, node);
    for (const [name, number] of Object.entries(others)) put(`${at}.version.${name}`, number);
    const reason = whyOf([standing]).find(({ notice }) => notice !== true);
    if (reason !== undefined) {
      put(`${at}.reason`, `${reason.code}: ${reason.message}`);
      put(`${at}.reason.since`, seconds(reason.since));
    }
    if (issues.length > 0) put(`${at}.issues`, issues.length);
    if (notices.length > 0) put(`${at}.notices`, notices.length);
    const shown = [...issues, ...notices].slice(0, Math.min(MAX_ITEMS, itemsLeft));
    itemsLeft -= shown.length;
    for (const { path, code, message } of shown) {
      const item = path.startsWith(`${section}.`) ? path.slice(section.length + 1) : path;
      put(`${at}.item.${item}`.slice(0, MAX_KEY), `${code}: ${message}`);
    }
    if (drift.count > 0) {
      put(`${at}.drift.count`, drift.count);
      put(`${at}.drift.last`, drift.lastAt === undefined ? undefined : seconds(drift.lastAt));
      put(`${at}.drift.what`, drift.what.join(", "));
    }
    const entries = flat(reported);
    for (const [key, value] of entries.slice(0, MAX_REPORTED)) put(reportedKey(at, key), value);
    if (entries.length > MAX_REPORTED) put(`${at}.reported.more`, entries.length - MAX_REPORTED);
  }
  return Object.fromEntries(facts);
}

function reportedKey(at: string, key: string): string {
  return PLATFORM_KEYS.has(key) || TUNNEL_STATE.test(key) ? key : `${at}.reported.${key}`;
}

/** Flattens an object into dotted keys: texts and numbers unchanged, booleans and lists as text. */
function flat(value: Readonly<Record<string, unknown>>, prefix = "", depth = 1): (readonly [string, ShadowValue])[] {
  return Object.entries(value).flatMap(([name, inner]): (readonly [string, ShadowValue])[] => {
    const key = `${prefix}${name}`;
    if (inner === null || inner === undefined) return [];
    if (typeof inner === "string") return [[key, inner]];
    if (typeof inner === "number") return Number.isFinite(inner) ? [[key, inner]] : [];
    if (typeof inner === "boolean") return [[key, String(inner)]];
    if (Array.isArray(inner)) return [[key, inner.map((one) => plain(one)).join(", ")]];
    return depth < MAX_DEPTH ? flat({ ...inner }, `${key}.`, depth + 1) : [];
  });
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
