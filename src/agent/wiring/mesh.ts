import { isIP } from "node:net";
import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { MeshStanding, Overlay, OverlayOptions } from "../../host/overlay/client.ts";
import { hasNetRaw } from "../../host/proc.ts";
import type { Reader } from "../../host/reader.ts";
import { reverseLookup, type ReverseLookup } from "../../host/net/reverse-lookup.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { DomainView, ReadDomain } from "../../protocol/documents/domain-view.ts";
import type { DataPlane } from "../../protocol/local/mesh.ts";
import type { RttBucket } from "../../protocol/overlay/mesh.ts";
import type { Gateway } from "../../protocol/sections/gateway/gateway.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import { carrierOf, dataPlaneState, namesOf } from "../data-plane/mesh-report.ts";
import { parsedSections } from "../applying/parsed-sections.ts";
import { typeHere } from "../profile.ts";
import type { AgentSettings } from "../settings.ts";
import type { Desired } from "../shadow/desired.ts";
import type { EventLog } from "../telemetry/events.ts";
import { gatewayDetails } from "../telemetry/conditions/gateway-details.ts";
import { gatewayWatch } from "../telemetry/conditions/gateway-watch.ts";
import { hopWatch, type HopTarget, type HopWish } from "../telemetry/conditions/hop-watch.ts";
import { bytesOf, risesOf } from "../telemetry/ingress.ts";
import { meshEvents } from "../telemetry/conditions/mesh-events.ts";
import { reverseNames } from "../telemetry/conditions/reverse-names.ts";
import type { Spool } from "../telemetry/spool.ts";
import { defined } from "../../lib/defined.ts";

export interface OpenMeshOptions {
  readonly settings: Pick<AgentSettings, "profile">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly reader: Pick<Reader, "read">;
  readonly exec: Pick<Exec, "run">;
  readonly events: EventLog;
  readonly spool: Pick<Spool, "appendAll">;
  readonly documents: { readonly current: Desired };
  readonly domain: ReadDomain;
  /** The effective configuration. */
  readonly config: () => Config;
  /** Reports whether there is a session with the control plane. */
  readonly isOnline: () => boolean;
  /** The overlay, once it is open. */
  readonly overlay: () => Pick<Overlay, "status" | "view" | "mesh">;
  /** Called when there are records to send. */
  readonly onRecords: () => void;
  /** Called when a shadow fact may have changed. */
  readonly onChanged: () => void;
  readonly lookUp?: ReverseLookup;
}

/** Events, records, metrics and facts about the paths to other nodes. */
export interface OpenedMesh {
  /** The callbacks of the overlay. */
  readonly notices: Required<Pick<OverlayOptions, "onMesh" | "onMeshEvents" | "onRtt">>;
  /** Re-evaluates the documents and the session. */
  refresh(): void;
  /** The state of the paths that this node initiates, and which one carries the traffic. */
  dataPlane(): DataPlane;
  /** Returns the metrics since the last sample; empty without paths to other nodes. */
  sample(signal: AbortSignal): Promise<Readonly<Record<string, number>>>;
  /** The shadow facts. */
  facts(): ShadowMap;
  close(): void;
}

const ASK_WITHIN_MS = 3000;
const REPORT_AFTER_MS = 1000;

export function openMesh(options: OpenMeshOptions): OpenedMesh {
  const { clock, log, reader, exec, events, spool, documents, config, isOnline, overlay, onRecords, onChanged } =
    options;
  const parsed = parsedSections();
  const names = reverseNames(clock, options.lookUp ?? reverseLookup);
  const closing = new AbortController();
  let cancelReport: (() => void) | undefined;
  let lastFacts = "";
  let before: { readonly standing: MeshStanding; readonly at: number } | undefined;

  const domain = (): DomainView | undefined => options.domain(documents.current.domain?.body);
  const nodeType = (): NodeType => typeHere(options.settings.profile, documents.current.node?.body.type);
  const gateway = (): Gateway => parsed.gateway(config().gateway, nodeType()).gateway;
  const ask = (signal: AbortSignal): Promise<MeshStanding | undefined> =>
    overlay().view.mesh === undefined ? Promise.resolve(undefined) : overlay().mesh(withinTime(signal, ASK_WITHIN_MS));

  const pathEvents = meshEvents({
    clock,
    events,
    nameOf: (uid) => domain()?.peers.get(uid)?.name,
    isGateway: (uid) => domain()?.peers.get(uid)?.gateway !== undefined,
    isWanted: () => overlay().status().state !== "up" && documents.current.node?.body.state === "ACTIVE",
    isOnline,
  });
  const watch = gatewayWatch({
    clock,
    events,
    wish: () => ({ gateway: gateway(), mesh: overlay().view.mesh, uidOf: (name) => domain()?.find(name)?.uid }),
    ask: () => ask(closing.signal),
  });
  const hops = hopWatch({
    clock,
    log,
    exec,
    wish: () => hopWish(gateway(), domain(), overlay().view),
    isPermitted: () => hasNetRaw(reader.read("/proc/self/status") ?? ""),
    onUnable(message) {
      log.warn(message);
      events.notice({ eventType: "Gateway Hop Monitoring", object: "mtr", level: "WARNING", message });
    },
  });

  function keep(buckets: readonly RttBucket[]): void {
    const nameOf = namesOf(domain());
    const paths = overlay().view.mesh?.paths ?? [];
    const records = buckets.flatMap((bucket) => {
      const { gateway, path } = bucket;
      const isDefault = paths.some((one) => one.gateway === gateway && one.id === path && one.isDefault);
      const found = hops.take(gateway, path);
      const record = gatewayDetails(bucket, nameOf(gateway), isDefault, { found, nameOf: names.nameOf });
      return record === undefined ? [] : [record];
    });
    if (records.length === 0) return;
    spool.appendAll("gateway-details", records);
    onRecords();
  }

  /** Reports changed facts after 1 s: paths may change faster than reports are useful. */
  function reportSoon(): void {
    cancelReport ??= clock.after(REPORT_AFTER_MS, () => {
      cancelReport = undefined;
      const facts = JSON.stringify(factsNow());
      if (facts === lastFacts) return;
      lastFacts = facts;
      onChanged();
    });
  }

  function dataPlane(): DataPlane {
    const { mesh, standing } = overlay().view;
    const carrier = carrierOf(standing, namesOf(domain()));
    return {
      state: dataPlaneState(mesh, standing),
      paths: mesh?.paths.length ?? 0,
      up: standing?.paths.filter(({ state }) => state === "up").length ?? 0,
      ...defined({ carrier }),
      ...(mesh?.server === undefined || standing === undefined ? {} : { server: standing.server.state }),
    };
  }

  function factsNow(): ShadowMap {
    const { mesh, standing } = overlay().view;
    if (mesh === undefined) return {};
    const { state, paths, up, carrier } = dataPlane();
    const clients = standing?.clients.filter((client) => client.state === "up").length ?? 0;
    return {
      "gateway.status": state,
      "gateway.paths": paths,
      "gateway.paths.up": up,
      ...(mesh.server === undefined ? {} : { "gateway.clients": clients }),
      ...(carrier === undefined
        ? {}
        : {
            "gateway.carrier": carrier.path === "" ? carrier.gateway : `${carrier.gateway}/${carrier.path}`,
            "gateway.carrier.since": Math.floor(carrier.since / 1000),
          }),
    };
  }

  function refresh(): void {
    pathEvents.refresh();
    watch.refresh();
    hops.refresh();
  }

  return {
    notices: {
      onMesh(standing) {
        pathEvents.stands(standing);
        watch.refresh();
        hops.refresh();
        reportSoon();
      },
      onMeshEvents: (list) => pathEvents.happened(list),
      onRtt: keep,
    },
    refresh,
    dataPlane,
    async sample(signal) {
      const standing = await ask(signal).catch((error: unknown) => {
        log.debug({ err: toError(error) }, "the overlay does not report on other nodes");
        return undefined;
      });
      const was = before;
      before = standing === undefined ? undefined : { standing, at: clock.elapsed() };
      return standing === undefined ? {} : meshMetrics(was, { standing, at: clock.elapsed() });
    },
    facts: factsNow,
    close() {
      closing.abort();
      cancelReport?.();
      pathEvents.close();
      watch.close();
      hops.close();
    },
  };
}

interface Reading {
  readonly standing: MeshStanding;
  /** Monotonic milliseconds. */
  readonly at: number;
}

/** Returns the number of tunnels, of those that are up, and bits a second over all of them since the previous reading. Pure. */
export function meshMetrics(before: Reading | undefined, { standing, at }: Reading): Readonly<Record<string, number>> {
  const tunnels = [...standing.paths, ...standing.clients];
  const counts = {
    "gw.available": tunnels.length,
    "gw.connected": tunnels.filter(({ state }) => state === "up").length,
  };
  if (before === undefined || at <= before.at) return counts;
  const rate = (direction: "bytesIn" | "bytesOut"): number =>
    Math.round((risesOf(bytesOf(before.standing, direction), bytesOf(standing, direction)) * 8000) / (at - before.at));
  return { ...counts, "gw.rxBps": rate("bytesIn"), "gw.txBps": rate("bytesOut") };
}

/** Returns the paths whose hops are traced: all of them, or those to gateways that ask for it. Pure. */
export function hopWish(
  { hops }: Pick<Gateway, "hops">,
  domain: DomainView | undefined,
  { mesh, standing }: Pick<Overlay["view"], "mesh" | "standing">,
): HopWish {
  const { mode, protocol, intervalSeconds, synPayload, icmpPayload, overrides } = hops;
  const wanted = (mesh?.paths ?? []).filter(
    ({ gateway }) =>
      mode === "always" || (mode === "peer-request" && domain?.peers.get(gateway)?.gateway?.requestsHops === true),
  );
  const others = new Map(overrides.map(({ node, protocol }) => [domain?.find(node)?.uid, protocol]));
  const targets = wanted.flatMap(({ gateway, id, host, port, local }): HopTarget[] => {
    const remote = standing?.paths.find((path) => path.gateway === gateway && path.id === id)?.remote;
    const ip = isIP(host) === 0 ? remote?.ip : host;
    if (ip === undefined) return [];
    const by = others.get(gateway) ?? protocol;
    const payload = by === "icmp" ? icmpPayload : synPayload;
    return [{ gateway, path: id, ip, port, ...defined({ local }), protocol: by, payload }];
  });
  return { intervalMs: intervalSeconds * 1000, targets };
}
