import { hostExec } from "../../host/process/exec.ts";
import { resolveSet, systemResolve } from "../../host/net/system-resolve.ts";
import { inTurns } from "../../lib/async/in-turns.ts";
import { formatSpan } from "../../lib/text/durations.ts";
import type { ProxySettings } from "../../lib/net/proxy.ts";
import { Status } from "../../protocol/local/answers.ts";
import { ADMIN_SOCKET } from "../../protocol/local/api.ts";
import { GatewaysReport } from "../../protocol/local/mesh.ts";
import { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import { ask, fetchReport, isAbsent } from "../frame/client.ts";
import { checkControlPlane } from "./control-plane.ts";
import { checkPath, type PathTarget } from "./gateway.ts";
import { failed, passed, skipped, type Finding, type NetworkCheck } from "./result.ts";
import type { CheckTools } from "./tools.ts";
import type { Call } from "../frame/verb.ts";

const TRY_MS = 5000;
/** Maximum number of checked paths, and of concurrent checks. */
const MAX_PATHS = 64;
const PATHS_AT_ONCE = 8;

/** Checks the network by what the agent knows, or without an agent by what it left on disk. */
export async function checkNetwork(
  call: Call,
): Promise<{ readonly isRegistered: boolean; readonly checks: readonly NetworkCheck[] }> {
  const known = await targetsOf(call);
  return { isRegistered: known.targets.controlPlane !== undefined, checks: await checkAll(call, known) };
}

/** Runs all checks, even if the agent hangs or denies access: then by the state on disk. */
export async function networkChecksOf(call: Call): Promise<readonly NetworkCheck[]> {
  return checkAll(call, await targetsOf(call, true));
}

interface Known {
  readonly targets: NetworkTargets;
  /** State of the agent and its gateways; undefined without an agent. */
  readonly agent: { readonly finding: Finding; readonly gateways: GatewaysReport } | undefined;
}

/** Returns the targets: from the agent, or without one from its state on disk. */
async function targetsOf(call: Call, whateverAgent = false): Promise<Known> {
  const { settings, offline } = call;
  try {
    const targets = await ask(call, { method: "GET", path: "/v1/targets", socket: ADMIN_SOCKET }, NetworkTargets);
    const [{ session }, gateways] = await Promise.all([
      fetchReport(call, "/v1/status", Status),
      fetchReport(call, "/v1/gateways", GatewaysReport),
    ]);
    const since = formatSpan(call.clock.now() - session.since);
    const why = session.reason === undefined ? "" : `: ${session.reason.message}`;
    const finding =
      session.state === "online"
        ? passed("agent", `it has a session with its control plane, ${since}`)
        : session.state === "unregistered"
          ? skipped("agent", "it is not registered")
          : failed(
              "agent",
              `it has no session (${session.state} ${since})${why}`,
              "see the checks below, and 'holdfast why'",
            );
    return { targets, agent: { finding, gateways } };
  } catch (error) {
    call.signal.throwIfAborted();
    if (!whateverAgent && !isAbsent(error)) throw error;
    const readTargets = await offline.readTargets?.();
    if (readTargets === undefined) throw error;
    return { targets: await readTargets(settings.stateDir), agent: undefined };
  }
}

async function checkAll(call: Call, { targets, agent }: Known): Promise<readonly NetworkCheck[]> {
  const { clock, signal, settings } = call;
  const timeoutMs = Math.min(TRY_MS, settings.timeoutMs);
  // The overlay, which dials gateways, resolves their names by itself.
  const tools = { clock, exec: hostExec(clock), resolve: systemResolve(), timeoutMs, signal };
  const planeTools = { ...tools, resolve: resolveSet(targets.hosts ?? {}, tools.resolve) };
  const node = agent?.finding ?? skipped("agent", `none runs: this is what it left in ${settings.stateDir}`);
  const [planes, paths] = await Promise.all([
    Promise.all(originsOf(targets).map((url) => controlPlaneChecks(url, targets, planeTools))),
    inTurns(targets.paths.toSorted(byName).slice(0, MAX_PATHS), PATHS_AT_ONCE, (path) =>
      pathChecks(path, agent?.gateways, tools),
    ),
  ]);
  return [
    { target: "node", name: "agent", ...node },
    ...(targets.controlPlane === undefined ? [unregistered] : []),
    ...planes.flat(),
    ...paths.flat(),
  ];
}

const unregistered: NetworkCheck = {
  target: "control-plane",
  name: "",
  ...skipped("dns", "this node is not registered: 'holdfast register' does it"),
};

/** Returns the origins of documents and of the session, usually one. */
function originsOf({ controlPlane }: NetworkTargets): readonly URL[] {
  if (controlPlane === undefined) return [];
  const session = new URL(controlPlane.session.replace(/^ws/, "http"));
  const origins = [new URL(controlPlane.url).origin, session.origin];
  return [...new Set(origins)].map((origin) => new URL(origin));
}

async function controlPlaneChecks(
  url: URL,
  targets: NetworkTargets,
  tools: CheckTools,
): Promise<readonly NetworkCheck[]> {
  const { proxy, controlPlane } = targets;
  const proxies: ProxySettings = {
    ...(proxy === undefined ? {} : { https: new URL(proxy.url) }),
    noProxy: proxy?.noProxy ?? [],
  };
  const findings = await checkControlPlane({ url, pins: controlPlane?.pins ?? [], proxies }, tools);
  return about({ target: "control-plane", name: url.origin }, findings);
}

async function pathChecks(
  path: PathTarget,
  gateways: GatewaysReport | undefined,
  tools: CheckTools,
): Promise<readonly NetworkCheck[]> {
  const findings = await checkPath(path, tools);
  const tunnel = tunnelFinding(path, gateways, tools.clock.now());
  return about({ target: "gateway", name: path.name, path: path.id }, [...findings, tunnel]);
}

function about(what: Pick<NetworkCheck, "target" | "name" | "path">, findings: readonly Finding[]): NetworkCheck[] {
  return findings.map((finding) => Object.assign({}, what, finding));
}

/** Reports the state of the agent's tunnel on this path. */
function tunnelFinding({ gateway, id }: PathTarget, report: GatewaysReport | undefined, now: number): Finding {
  if (report === undefined) return skipped("tunnel", "no agent runs");
  const path = report.gateways.find(({ uid }) => uid === gateway)?.paths.find((one) => one.id === id);
  if (path === undefined) return skipped("tunnel", "the agent does not report it");
  const since = path.since === undefined ? "" : ` ${formatSpan(now - path.since)}`;
  const why = path.reason === undefined ? "" : `: ${path.reason}`;
  if (path.state === "up") return passed("tunnel", `up${since}${path.carries ? ", carries" : ""}`);
  return failed("tunnel", `${path.state}${since}${why}`, "see the checks above, and 'holdfast gateways'");
}

function byName(a: PathTarget, b: PathTarget): number {
  return a.name === b.name ? (a.id < b.id ? -1 : 1) : a.name < b.name ? -1 : 1;
}
