import { z } from "zod";
import { packageVersion } from "../lib/build-info.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import { Text64 } from "../protocol/values/values.ts";

/*
 * A short string of an agent's response. The agent may be newer than this program, so only required fields are parsed, and an unknown
 * value counts as a different one.
 */
const Word = Text64;
const Items = z.array(z.object({ id: z.string(), state: Word }));

export const StatusAnswer = z.object({
  version: Word,
  build: Word,
  node: z.unknown().optional(),
  session: z.object({
    state: Word,
    heartbeatAt: z.number().optional(),
    reason: z.object({ code: Word }).optional(),
  }),
  documents: z.record(z.string(), z.object({ version: z.number() })),
  sections: z.record(z.string(), z.object({ state: Word, version: z.number() })),
  pendingChange: z.unknown().optional(),
});
export const ConnectorsAnswer = z.object({ connectors: Items });
export const ServicesAnswer = z.object({
  services: z.array(z.object({ id: z.string(), state: Word, health: z.object({ state: Word }).optional() })),
});
const Path = z.object({ id: z.string(), state: Word });
export const GatewaysAnswer = z.object({
  gateways: z.array(z.object({ uid: z.string(), name: z.string(), paths: z.array(Path) })),
});
export const ContainersAnswer = z.object({
  containers: z.array(
    z.object({ id: z.string(), type: Word, enabled: z.boolean(), state: Word, health: Word.optional() }),
  ),
});
/** Addresses at which a gateway is dialled, and the key that it presents. */
export type GatewayPath = NetworkTargets["paths"][number];

/** An agent's own report, reduced to the fields that an upgrade needs. */
export interface AgentView {
  /** Version as named on disk. */
  readonly version: string;
  readonly isRegistered: boolean;
  readonly session: { readonly state: string; readonly hasBeaten: boolean; readonly reason: string | undefined };
  readonly documents: Readonly<Record<string, number>>;
  readonly sections: ReadonlyMap<string, { readonly state: string; readonly version: number }>;
  readonly hasPendingChange: boolean;
  /** Whether each item works, by id; disabled items are omitted. */
  readonly connectors: ReadonlyMap<string, boolean>;
  readonly services: ReadonlyMap<string, boolean>;
  readonly containers: ReadonlyMap<string, boolean>;
  readonly gateways: ReadonlyMap<string, { readonly isUp: boolean; readonly paths: readonly GatewayPath[] }>;
  readonly targets: NetworkTargets | undefined;
}

export interface Answers {
  readonly status: z.infer<typeof StatusAnswer>;
  readonly connectors: z.infer<typeof ConnectorsAnswer> | undefined;
  readonly services: z.infer<typeof ServicesAnswer> | undefined;
  readonly gateways: z.infer<typeof GatewaysAnswer> | undefined;
  readonly containers: z.infer<typeof ContainersAnswer> | undefined;
  readonly targets: NetworkTargets | undefined;
}

/** An item is off together with its node; an enabled container can be stopped. */
const isOn = ({ state }: { readonly state: string }): boolean => state !== "off";
const SUSPENDED: ReadonlySet<string> = new Set(["idle", "stopping"]);

/** Combines an agent's responses; items of a missing response do not work. Pure. */
export function viewOf({ status, connectors, services, gateways, containers, targets }: Answers): AgentView {
  const { session } = status;
  return {
    version: packageVersion(status),
    isRegistered: status.node !== null && status.node !== undefined,
    session: { state: session.state, hasBeaten: session.heartbeatAt !== undefined, reason: session.reason?.code },
    documents: Object.fromEntries(Object.entries(status.documents).map(([name, { version }]) => [name, version])),
    sections: new Map(Object.entries(status.sections)),
    hasPendingChange: status.pendingChange !== undefined && status.pendingChange !== null,
    connectors: new Map(connectors?.connectors.filter(isOn).map(({ id, state }) => [id, state === "listening"])),
    services: new Map(
      services?.services
        .filter(isOn)
        .map(({ id, state, health }) => [id, state === "offered" && health?.state !== "down"]),
    ),
    containers: new Map(
      containers?.containers
        .filter(({ type, enabled, state }) => type === "service" && enabled && !SUSPENDED.has(state))
        .map(({ id, state, health }) => [id, state === "running" && health !== "unhealthy"]),
    ),
    gateways: new Map(
      gateways?.gateways.map(({ uid, paths }) => [
        uid,
        {
          isUp: paths.some(({ state }) => state === "up"),
          paths: targets?.paths.filter(({ gateway }) => gateway === uid) ?? [],
        },
      ]),
    ),
    targets,
  };
}
