import type { Clock } from "../../../host/clock.ts";
import type { MeshStanding } from "../../../host/overlay/client.ts";
import type { OverlayMesh, PathState } from "../../../protocol/overlay/mesh.ts";
import type { Gateway, LatencyMonitor } from "../../../protocol/sections/gateway/gateway.ts";
import type { EventLog } from "../events.ts";
import { bytesOf, nextIngress, risesOf, type IngressState } from "../ingress.ts";
import { INITIAL_LATENCY, nextLatency, type LatencyState } from "./latency.ts";
import { defined } from "../../../lib/defined.ts";

/** The section's monitors, and the nodes that they name. */
export interface GatewayWish {
  readonly gateway: Gateway;
  readonly mesh: OverlayMesh | undefined;
  /** Returns a node's uid by name, FQDN or uid. */
  readonly uidOf: (name: string) => string | undefined;
}

export interface GatewayWatchOptions {
  readonly clock: Clock;
  readonly events: Pick<EventLog, "raise" | "clear" | "openEvents">;
  readonly wish: () => GatewayWish;
  /** Reads the overlay's state; undefined if it does not answer. */
  readonly ask: () => Promise<MeshStanding | undefined>;
}

/** Compares round trips and ingress with their limits every 20 s, from the first refresh on while anything is monitored. */
export interface GatewayWatch {
  /** Re-evaluates the monitors. */
  refresh(): void;
  close(): void;
}

const EVERY_MS = 20_000;
const LATENCY = "Gateway Latency Exceeded";
const INGRESS = "Gateway Ingress Limit Reached";
const SERVER = "gateway";

export function gatewayWatch({ clock, events, wish, ask }: GatewayWatchOptions): GatewayWatch {
  const states = new Map<string, LatencyState>();
  let ingress: IngressState = { isReached: false };
  let before: { readonly bytes: ReadonlyMap<string, number>; readonly at: number } | undefined;
  let cancelTimer: (() => void) | undefined;
  let isClosed = false;

  for (const { eventType, object } of events.openEvents()) {
    if (eventType === LATENCY) states.set(object, { isTriggered: true, inARow: 0 });
    if (eventType === INGRESS) ingress = { isReached: true };
  }

  function isNeeded({ gateway, mesh }: GatewayWish): boolean {
    return gateway.latency.monitors.length > 0 || limitOf(mesh) !== undefined || states.size > 0 || ingress.isReached;
  }

  function arm(): void {
    if (isClosed || cancelTimer !== undefined || !isNeeded(wish())) return;
    cancelTimer = clock.after(EVERY_MS, () => {
      cancelTimer = undefined;
      // An overlay that does not answer gives no samples.
      ask()
        .then(sample, () => sample(undefined))
        .finally(arm);
    });
  }

  function sample(standing: MeshStanding | undefined): void {
    if (isClosed) return;
    const wanted = wish();
    judgeLatency(wanted, standing);
    judgeIngress(limitOf(wanted.mesh), standing);
  }

  function judgeLatency({ gateway, mesh, uidOf }: GatewayWish, standing: MeshStanding | undefined): void {
    const monitors = new Map(gateway.latency.monitors.map((monitor) => [objectOf(monitor), monitor]));
    for (const [object, { isTriggered }] of states) {
      if (monitors.has(object)) continue;
      states.delete(object);
      if (isTriggered) events.clear({ eventType: LATENCY, object, message: `${object} is no longer monitored` });
    }
    for (const [object, monitor] of monitors) {
      const path = standing?.paths.find((path) => isMeant(path, monitor, uidOf(monitor.node), mesh));
      const rttMs = path?.state === "up" ? path.rttMs : undefined;
      // Without an answer there is no sample.
      if (rttMs === undefined) continue;
      const state = states.get(object) ?? INITIAL_LATENCY;
      const next = nextLatency(state, monitor, rttMs);
      states.set(object, next);
      if (next.isTriggered !== state.isTriggered) tellLatency(object, monitor, rttMs, next.isTriggered);
    }
  }

  function tellLatency(object: string, monitor: LatencyMonitor, rttMs: number, isTriggered: boolean): void {
    const { node, path, maxLatencyMs, isCritical } = monitor;
    const details = { gateway: node, ...defined({ path }), rttMs, maxLatencyMs, isCritical };
    const who = `The round trip to gateway ${node}${path === undefined ? "" : ` by path ${path}`}`;
    const took = `${Math.round(rttMs)} ms`;
    if (isTriggered) {
      const message = `${who} takes ${took}, more than ${maxLatencyMs} ms`;
      events.raise({ eventType: LATENCY, object, level: "ERROR", message, details });
    } else {
      const message = `${who} takes ${took} again, no more than ${maxLatencyMs} ms`;
      events.clear({ eventType: LATENCY, object, message, details });
    }
  }

  function judgeIngress(limit: number | undefined, standing: MeshStanding | undefined): void {
    const now = clock.elapsed();
    const was = before;
    before = standing === undefined ? undefined : { bytes: bytesOf(standing, "bytesIn"), at: now };
    if (limit === undefined) return setIngress({ isReached: false }, 0, 0);
    if (was === undefined || before === undefined || now <= was.at) return;
    const bitsPerSecond = (risesOf(was.bytes, before.bytes) * 8000) / (now - was.at);
    setIngress(nextIngress(ingress, bitsPerSecond / limit, was.at, now), bitsPerSecond, limit);
  }

  function setIngress(next: IngressState, bitsPerSecond: number, limit: number): void {
    const wasReached = ingress.isReached;
    ingress = next;
    if (next.isReached === wasReached) return;
    const [mbps, maxMbps] = [bitsPerSecond, limit].map((bits) => Math.round(bits / 100_000) / 10);
    const details = { mbps, maxmbps: maxMbps };
    const condition = { eventType: INGRESS, object: SERVER, details };
    if (next.isReached) {
      const message = `Ingress over tunnels is at its limit of ${maxMbps} Mbit/s`;
      events.raise({ ...condition, level: "ERROR", message });
    } else events.clear({ ...condition, message: "Ingress over tunnels is no longer at its limit" });
  }

  return {
    refresh: arm,
    close() {
      isClosed = true;
      cancelTimer?.();
    },
  };
}

/** Returns the ingress limit, if this node is a gateway. */
function limitOf(mesh: OverlayMesh | undefined): number | undefined {
  return mesh?.server === undefined ? undefined : mesh.ingressBitsPerSecond;
}

function objectOf({ node, path, maxLatencyMs }: LatencyMonitor): string {
  return `${node}${path === undefined ? "" : `/${path}`} above ${maxLatencyMs} ms`;
}

/** Reports whether a monitor applies to a path: the named one, or the preferred one to its gateway. */
function isMeant(
  { gateway, id }: PathState,
  { path }: LatencyMonitor,
  uid: string | undefined,
  mesh: OverlayMesh | undefined,
): boolean {
  if (gateway !== uid) return false;
  if (path !== undefined) return id === path;
  return mesh?.paths.some((one) => one.gateway === gateway && one.id === id && one.isDefault) ?? false;
}
