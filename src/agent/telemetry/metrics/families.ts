import type { ContainersReport } from "../../../protocol/local/containers.ts";
import type { GatewaysReport } from "../../../protocol/local/mesh.ts";
import type { ConnectorCounters, ConnectorsReport, ServicesReport } from "../../../protocol/local/overlay.ts";
import type { Status } from "../../../protocol/local/answers.ts";
import type { WhyReport } from "../../../protocol/documents/reconcile.ts";

/** One Prometheus metric: a counter's name ends in `_total`, and units are seconds and bytes. */
export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "gauge" | "counter";
  readonly samples: readonly Sample[];
}

export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** All readings of one scrape; metrics of absent readings are skipped. */
export interface ScrapeReading {
  readonly status: Status;
  readonly why: WhyReport;
  readonly connectors?: ConnectorsReport | undefined;
  readonly services?: ServicesReport | undefined;
  readonly gateways?: GatewaysReport | undefined;
  readonly containers: ContainersReport;
  readonly triggers: { readonly running: number; readonly succeeded: number; readonly failed: number };
  readonly transfers: number;
  readonly eventLoop: { readonly meanSeconds: number; readonly p99Seconds: number; readonly maxSeconds: number };
}

/** Number of items of a kind with a series of their own, first by name; the others share one. */
export const MAX_ITEMS = 100;
/** Label value of the others; no id starts with an underscore. */
export const OTHERS = "_others";

type Family0 = readonly [name: string, help: string];

const gauge = ([name, help]: Family0, ...samples: readonly Sample[]): Family => ({
  name,
  help,
  type: "gauge",
  samples,
});
const counter = ([name, help]: Family0, ...samples: readonly Sample[]): Family => ({
  name,
  help,
  type: "counter",
  samples,
});
const plain = (value: number): Sample => ({ labels: {}, value });
const one = (labels: Readonly<Record<string, string>>, value: number | boolean): Sample => ({
  labels,
  value: Number(value),
});
const seconds = (ms: number): number => ms / 1000;

/** Converts the readings to metrics. Pure. */
export function familiesOf(reading: ScrapeReading): readonly Family[] {
  return [
    ...agentFamilies(reading),
    ...sessionFamilies(reading.status),
    ...desiredFamilies(reading),
    ...telemetryFamilies(reading.status),
    ...overlayFamilies(reading),
    ...gatewayFamilies(reading.gateways),
    ...containerFamilies(reading.containers),
  ].filter(({ samples }) => samples.length > 0);
}

function agentFamilies({ status, eventLoop, triggers, transfers }: ScrapeReading): readonly Family[] {
  const { rssBytes, privateDirtyBytes, cpuSeconds, children } = status.process;
  const { version, build } = status;
  const delays: readonly (readonly [string, number])[] = [
    ["mean", eventLoop.meanSeconds],
    ["p99", eventLoop.p99Seconds],
    ["max", eventLoop.maxSeconds],
  ];
  return [
    gauge(["holdfast_build_info", "Version of this program; always 1."], one({ version, build }, 1)),
    gauge(["holdfast_start_time_seconds", "Start time of the agent, Unix time."], plain(seconds(status.startedAt))),
    gauge(["holdfast_resident_memory_bytes", "Resident memory of the agent."], plain(rssBytes)),
    gauge(
      ["holdfast_private_dirty_memory_bytes", "Private dirty memory of the agent."],
      ...(privateDirtyBytes === undefined ? [] : [plain(privateDirtyBytes)]),
    ),
    counter(["holdfast_cpu_seconds_total", "Processor time of the agent, user and system."], plain(cpuSeconds)),
    gauge(["holdfast_child_processes", "Running processes that the agent started."], plain(children)),
    gauge(
      ["holdfast_event_loop_delay_seconds", "Delay of the agent's event loop since the last scrape."],
      ...delays.map(([stat, value]) => one({ stat }, value)),
    ),
    gauge(
      ["holdfast_faults", "Faults since the agent's start that are not resolved."],
      plain(status.faults.filter(({ mendedAt }) => mendedAt === undefined).length),
    ),
    gauge(["holdfast_triggers_running", "Running trigger events."], plain(triggers.running)),
    counter(
      ["holdfast_triggers_total", "Trigger events that have ended since the agent's start."],
      one({ outcome: "succeeded" }, triggers.succeeded),
      one({ outcome: "failed" }, triggers.failed),
    ),
    gauge(["holdfast_transfers_open", "Waiting and running tasks of the data store."], plain(transfers)),
  ];
}

const SESSION_STATES = ["unregistered", "waiting", "connecting", "online", "stopped"] as const;

function sessionFamilies({ session, node }: Status): readonly Family[] {
  return [
    gauge(["holdfast_registered", "Whether this node is registered."], plain(Number(node !== null))),
    gauge(
      ["holdfast_session_state", "State of the session with the control plane: 1 for the one it is in."],
      ...SESSION_STATES.map((state) => one({ state }, session.state === state)),
    ),
    gauge(
      ["holdfast_session_state_since_seconds", "Time of the session's last change of state, Unix time."],
      plain(seconds(session.since)),
    ),
    gauge(["holdfast_session_attempts", "Attempts since the session was last online."], plain(session.attempt)),
    gauge(
      ["holdfast_session_rtt_seconds", "Round trip to the control plane."],
      ...(session.rttMs === undefined ? [] : [plain(seconds(session.rttMs))]),
    ),
  ];
}

const SECTION_STATES = ["converged", "rejected", "failed", "diverged", "pending", "unsupported"] as const;

function desiredFamilies({ status, why }: ScrapeReading): readonly Family[] {
  const documents = Object.entries(status.documents);
  const sections = Object.entries(status.sections).sort(([a], [b]) => (a < b ? -1 : 1));
  const wrong = countBy(why.reasons.filter(({ notice }) => notice !== true).map(({ section }) => section));
  return [
    gauge(
      ["holdfast_document_version", "Version of each applied document."],
      ...documents.map(([document, { version }]) => one({ document }, version)),
    ),
    gauge(
      ["holdfast_document_received_seconds", "Time when each document was received, Unix time."],
      ...documents.flatMap(([document, { receivedAt }]) =>
        receivedAt === undefined ? [] : [one({ document }, seconds(receivedAt))],
      ),
    ),
    gauge(
      ["holdfast_document_applied_seconds", "Time when each document was last applied, Unix time."],
      ...documents.flatMap(([document, { appliedAt }]) =>
        appliedAt === undefined ? [] : [one({ document }, seconds(appliedAt))],
      ),
    ),
    gauge(
      ["holdfast_section_state", "State of each section of the configuration: 1 for the one it is in."],
      ...sections.flatMap(([section, body]) =>
        SECTION_STATES.map((state) => one({ section, state }, body.state === state)),
      ),
    ),
    gauge(
      ["holdfast_section_problems", "Reasons why the state is not as desired, by section."],
      ...sections.map(([section]) => one({ section }, wrong.get(section) ?? 0)),
    ),
    gauge(
      ["holdfast_pending_change", "Whether a network change is pending."],
      plain(Number(status.pendingChange !== undefined)),
    ),
  ];
}

function telemetryFamilies({ telemetry }: Status): readonly Family[] {
  const streams = Object.entries(telemetry);
  return [
    gauge(
      ["holdfast_spool_records", "Records that wait for the control plane."],
      ...streams.map(([stream, { queued }]) => one({ stream }, queued)),
    ),
    counter(
      ["holdfast_spool_dropped_total", "Records lost because too many waited."],
      ...streams.map(([stream, { dropped }]) => one({ stream }, dropped)),
    ),
  ];
}

function overlayFamilies({ status, connectors, services }: ScrapeReading): readonly Family[] {
  const { overlay } = status.engines;
  const counted = totals(connectors);
  const of = (value: (counters: ConnectorCounters) => number): readonly Sample[] =>
    counted.map(([connector, counters]) => one({ connector }, value(counters)));
  const reasons = (name: "refusals" | "errors"): readonly Sample[] => {
    const sum = new Map<string, number>();
    for (const [, counters] of counted)
      for (const [reason, count] of Object.entries(counters[name])) sum.set(reason, (sum.get(reason) ?? 0) + count);
    return [...sum].sort(([a], [b]) => (a < b ? -1 : 1)).map(([reason, count]) => one({ reason }, count));
  };
  return [
    gauge(
      ["holdfast_overlay_state", "State of the overlay program: 1 for the one it is in."],
      ...(overlay === undefined
        ? []
        : (["up", "down", "off"] as const).map((state) => one({ state }, overlay.state === state))),
    ),
    gauge(["holdfast_connectors", "Connectors by state."], ...byState(connectors?.connectors)),
    gauge(["holdfast_services", "Services by state."], ...byState(services?.services)),
    gauge(["holdfast_connector_flows_active", "Open flows."], ...of(({ flowsActive }) => flowsActive)),
    counter(
      ["holdfast_connector_flows_total", "Flows that have reached their target."],
      ...of(({ flowsTotal }) => flowsTotal),
    ),
    counter(
      ["holdfast_connector_received_bytes_total", "Bytes received from clients."],
      ...of(({ bytesIn }) => bytesIn),
    ),
    counter(["holdfast_connector_sent_bytes_total", "Bytes sent to clients."], ...of(({ bytesOut }) => bytesOut)),
    counter(
      ["holdfast_connector_datagrams_dropped_total", "Dropped datagrams."],
      ...of(({ datagramsDropped }) => datagramsDropped),
    ),
    counter(
      ["holdfast_flows_refused_total", "Flows that never reached their target, by reason."],
      ...reasons("refusals"),
    ),
    counter(["holdfast_flows_failed_total", "Flows that ended with an error, by reason."], ...reasons("errors")),
  ];
}

function gatewayFamilies(report: GatewaysReport | undefined): readonly Family[] {
  if (report === undefined) return [];
  const paths = report.gateways
    .flatMap(({ fqdn, paths }) => paths.map((path) => ({ gateway: fqdn, path })))
    .sort((a, b) => compare(a.gateway, b.gateway) || compare(a.path.id, b.path.id))
    .slice(0, MAX_ITEMS);
  return [
    gauge(
      ["holdfast_gateway_path_up", "Whether each path to a gateway is up."],
      ...paths.map(({ gateway, path }) => one({ gateway, path: path.id }, path.state === "up")),
    ),
    gauge(
      ["holdfast_gateway_clients", "Nodes connected to this node's gateway."],
      ...(report.server === undefined ? [] : [plain(report.server.clients)]),
    ),
  ];
}

function containerFamilies({ engine, containers }: ContainersReport): readonly Family[] {
  if (engine.state === "unused") return [];
  return [
    gauge(
      ["holdfast_container_engine_up", "Whether the container engine answers."],
      plain(Number(engine.state === "well")),
    ),
    gauge(["holdfast_containers", "Containers by state."], ...byState(containers)),
    gauge(
      ["holdfast_containers_unhealthy", "Containers whose health check fails."],
      plain(containers.filter(({ health }) => health === "unhealthy").length),
    ),
    gauge(
      ["holdfast_container_restarts", "Restarts of all containers of the configuration."],
      plain(containers.reduce((sum, { restarts }) => sum + restarts, 0)),
    ),
  ];
}

/** Returns the counters of each connector by id; those beyond the limit are summed. */
function totals(report: ConnectorsReport | undefined): readonly (readonly [string, ConnectorCounters])[] {
  const counted = (report?.connectors ?? [])
    .flatMap(({ id, counters }) => (counters === undefined ? [] : [[id, counters] as const]))
    .sort(([a], [b]) => compare(a, b));
  const [first, ...others] = counted.slice(MAX_ITEMS).map(([, counters]) => counters);
  const shown = counted.slice(0, MAX_ITEMS);
  return first === undefined ? shown : [...shown, [OTHERS, others.reduce(sumOf, first)]];
}

function sumOf(a: ConnectorCounters, b: ConnectorCounters): ConnectorCounters {
  const merged = (name: "refusals" | "errors"): Record<string, number> => {
    const sum: Record<string, number> = { ...a[name] };
    for (const [reason, count] of Object.entries(b[name])) sum[reason] = (sum[reason] ?? 0) + count;
    return sum;
  };
  return {
    flowsActive: a.flowsActive + b.flowsActive,
    flowsTotal: a.flowsTotal + b.flowsTotal,
    bytesIn: a.bytesIn + b.bytesIn,
    bytesOut: a.bytesOut + b.bytesOut,
    datagramsDropped: a.datagramsDropped + b.datagramsDropped,
    refusals: merged("refusals"),
    errors: merged("errors"),
  };
}

function byState(items: readonly { readonly state: string }[] | undefined): readonly Sample[] {
  const counts = countBy((items ?? []).map(({ state }) => state));
  return [...counts].sort(([a], [b]) => compare(a, b)).map(([state, count]) => one({ state }, count));
}

function countBy(names: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
