import { z } from "zod";
import { Text64, Text253, Text512 } from "../protocol/values/values.ts";
import type { AgentView, GatewayPath } from "./agent-view.ts";
import { defined } from "../lib/defined.ts";

const Id = Text253;
const MAX_EACH = 1000;
const Ids = z.array(Id).max(MAX_EACH).default([]);

/** Limit of the baseline's text in a trial mark, in characters. */
const MAX_TEXT = 200_000;

/** Everything that worked before an upgrade, and the control plane to probe when something fails. */
export const Baseline = z.object({
  isRegistered: z.boolean().default(false),
  hasSession: z.boolean().default(false),
  /** URL of the session, and the hashes of the control plane's keys. */
  controlPlane: z.object({ session: Text512, pins: z.array(Text64).max(8) }).optional(),
  documents: z.record(Text64, z.number()).default({}),
  /** Document versions of the converged sections. */
  sections: z.record(Text64, z.number()).default({}),
  connectors: Ids,
  services: Ids,
  gateways: Ids,
  containers: Ids,
});
export type Baseline = z.infer<typeof Baseline>;

/** The empty baseline, which requires nothing. */
export const EMPTY_BASELINE: Baseline = Baseline.parse({});

/** Returns the baseline of an agent's current state, shortened to fit into a mark. Pure. */
export function baselineOf(view: AgentView, controlPlane: Baseline["controlPlane"]): Baseline {
  const whole: Baseline = {
    isRegistered: view.isRegistered,
    hasSession: view.session.state === "online",
    ...defined({ controlPlane }),
    documents: { ...view.documents },
    sections: Object.fromEntries(
      [...view.sections].filter(([, { state }]) => state === "converged").map(([name, { version }]) => [name, version]),
    ),
    connectors: working(view.connectors),
    services: working(view.services),
    gateways: working(new Map([...view.gateways].map(([name, { isUp }]) => [name, isUp]))),
    containers: working(view.containers),
  };
  return shortened(whole);
}

function shortened(baseline: Baseline): Baseline {
  const { connectors, services, gateways, containers } = baseline;
  const longest = Math.max(connectors.length, services.length, gateways.length, containers.length);
  if (longest <= 1 || JSON.stringify(baseline).length <= MAX_TEXT) return baseline;
  const half = (ids: readonly string[]): string[] => ids.slice(0, Math.ceil(ids.length / 2));
  const halves = { connectors: half(connectors), services: half(services), gateways: half(gateways) };
  return shortened({ ...baseline, ...halves, containers: half(containers) });
}

function working(items: ReadonlyMap<string, boolean>): string[] {
  return [...items].flatMap(([id, isWorking]) => (isWorking ? [id] : [])).slice(0, MAX_EACH);
}

/** Items of the baseline that do not work. `local` items depend only on this machine; a path of `gateways` may be down at its other end. */
export interface Missing {
  readonly local: readonly string[];
  readonly gateways: readonly { readonly name: string; readonly paths: readonly GatewayPath[] }[];
}

/**
 * Compares the baseline with the current state. Items that a newer document removed are not missing. The state of a section that
 * reports another document is unknown. Pure.
 */
export function missingOf(baseline: Baseline, view: AgentView): Missing {
  const isSameConfig = ["node", "cluster", "domain"].every((name) => baseline.documents[name] === view.documents[name]);
  const gone = (kind: string, ids: readonly string[], items: ReadonlyMap<string, boolean>): string[] =>
    ids.filter((id) => !(items.get(id) ?? !isSameConfig)).map((id) => `${kind} ${id}`);
  const sections = Object.entries(baseline.sections).flatMap(([name, version]) => {
    const section = view.sections.get(name);
    if (section === undefined) return isSameConfig ? [`section ${name}`] : [];
    return section.version === version && section.state !== "converged" ? [`section ${name}`] : [];
  });
  return {
    local: [
      ...(baseline.isRegistered && !view.isRegistered ? ["the registration"] : []),
      ...sections,
      ...gone("connector", baseline.connectors, view.connectors),
      ...gone("service", baseline.services, view.services),
      ...gone("container", baseline.containers, view.containers),
      ...(isSameConfig
        ? baseline.gateways.filter((uid) => !view.gateways.has(uid)).map((uid) => `gateway ${uid}`)
        : []),
    ],
    gateways: baseline.gateways.flatMap((name) => {
      const gateway = view.gateways.get(name);
      return gateway === undefined || gateway.isUp ? [] : [{ name, paths: gateway.paths }];
    }),
  };
}
