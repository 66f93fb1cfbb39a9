import { z } from "zod";
import { Text64, Text253, Text512 } from "../protocol/values/values.ts";
import type { AgentView, GatewayPath } from "./agent-view.ts";
import { defined } from "../lib/defined.ts";

const Id = Text253;
const MAX_EACH = 1000;
const Ids = z.array(Id).max(MAX_EACH).default([]);

/** How many characters it may take in the mark of a trial. */
const MAX_TEXT = 200_000;

/** What worked before an upgrade, and whom to ask whether a failing is the version's own. */
export const Before = z.object({
  isRegistered: z.boolean().default(false),
  hasSession: z.boolean().default(false),
  /** The address of the session and the key hashes that prove who answers there. */
  controlPlane: z.object({ session: Text512, pins: z.array(Text64).max(8) }).optional(),
  documents: z.record(Text64, z.number()).default({}),
  /** The document's version of each section that was converged. */
  sections: z.record(Text64, z.number()).default({}),
  connectors: Ids,
  services: Ids,
  gateways: Ids,
  containers: Ids,
});
export type Before = z.infer<typeof Before>;

/** Nothing worked, so nothing has to. */
export const NOTHING: Before = Before.parse({});

/** What works at this moment; shortened where it would not fit into a mark. Pure. */
export function beforeOf(view: AgentView, controlPlane: Before["controlPlane"]): Before {
  const whole: Before = {
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

function shortened(before: Before): Before {
  const { connectors, services, gateways, containers } = before;
  const longest = Math.max(connectors.length, services.length, gateways.length, containers.length);
  if (longest <= 1 || JSON.stringify(before).length <= MAX_TEXT) return before;
  const half = (ids: readonly string[]): string[] => ids.slice(0, Math.ceil(ids.length / 2));
  const halves = { connectors: half(connectors), services: half(services), gateways: half(gateways) };
  return shortened({ ...before, ...halves, containers: half(containers) });
}

function working(items: ReadonlyMap<string, boolean>): string[] {
  return [...items].flatMap(([id, isWorking]) => (isWorking ? [id] : [])).slice(0, MAX_EACH);
}

/** What worked before and does not: `local` ends at this machine, and a path of `gateways` may be down at its other end. */
export interface Missing {
  readonly local: readonly string[];
  readonly gateways: readonly { readonly name: string; readonly paths: readonly GatewayPath[] }[];
}

/**
 * Compares what worked before with what is seen. What a newer document took away is not missed, and of a section that answers another
 * document nothing is known. Pure.
 */
export function missingOf(before: Before, view: AgentView): Missing {
  const isSameConfig = ["node", "cluster", "domain"].every((name) => before.documents[name] === view.documents[name]);
  const gone = (kind: string, ids: readonly string[], items: ReadonlyMap<string, boolean>): string[] =>
    ids.filter((id) => !(items.get(id) ?? !isSameConfig)).map((id) => `${kind} ${id}`);
  const sections = Object.entries(before.sections).flatMap(([name, version]) => {
    const section = view.sections.get(name);
    if (section === undefined) return isSameConfig ? [`section ${name}`] : [];
    return section.version === version && section.state !== "converged" ? [`section ${name}`] : [];
  });
  return {
    local: [
      ...(before.isRegistered && !view.isRegistered ? ["the registration"] : []),
      ...sections,
      ...gone("connector", before.connectors, view.connectors),
      ...gone("service", before.services, view.services),
      ...gone("container", before.containers, view.containers),
      ...(isSameConfig ? before.gateways.filter((uid) => !view.gateways.has(uid)).map((uid) => `gateway ${uid}`) : []),
    ],
    gateways: before.gateways.flatMap((name) => {
      const gateway = view.gateways.get(name);
      return gateway === undefined || gateway.isUp ? [] : [{ name, paths: gateway.paths }];
    }),
  };
}
