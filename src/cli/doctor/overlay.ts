import { join } from "node:path";
import { readPidFile } from "../../host/process/pid-file.ts";
import { probeSocket, type SocketState } from "../../host/net/unix-socket.ts";
import type { ContainersReport } from "../../protocol/local/containers.ts";
import type { GatewaysReport } from "../../protocol/local/mesh.ts";
import type { ConnectorsReport, OverlayState } from "../../protocol/local/overlay.ts";
import { OVERLAY_SOCKET } from "../../protocol/overlay/overlay.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

const LOG_FIX = "the log of the overlay says why; the agent tries again by itself";
const MAX_NAMED = 50;

export const overlayChecks: CheckFamily = {
  name: "overlay",
  async run({ agent, left, reader }) {
    const [{ status, connectors, gateways }, { settings }] = await Promise.all([agent(), left()]);
    const runDir = settings.isGood ? settings.overlay.runDir : undefined;
    const socket =
      runDir === undefined ? undefined : await probeSocket(join(runDir, OVERLAY_SOCKET)).catch(() => undefined);
    const pid = runDir === undefined ? undefined : await readPidFile(runDir, "overlay");
    return [
      processCheck(status?.engines.overlay, socket),
      ...(pid === undefined ? [] : [programCheck(reader.linkTarget(`/proc/${pid}/exe`), pid)]),
      ...(connectors === undefined
        ? [skip("connectors", "no-agent", "no agent reports them")]
        : connectorChecks(connectors)),
      ...(gateways === undefined ? [skip("gateways", "no-agent", "no agent reports them")] : gatewayChecks(gateways)),
    ];
  },
};

export const engineChecks: CheckFamily = {
  name: "containers",
  async run({ agent }) {
    const { containers } = await agent();
    return containers === undefined ? [skip("engine", "no-agent", "no agent reports it")] : containerChecks(containers);
  },
};

/** Judges whether the data plane runs: by the agent's report, else by its socket. Pure. */
export function processCheck(state: OverlayState | undefined, socket: SocketState | undefined): Check {
  if (state !== undefined) {
    if (state.state === "off") return skip("running", "off", "nothing asks for it");
    if (state.state === "up" && state.reason === undefined)
      return pass("running", `it serves as process ${state.pid ?? "?"}`);
    return fail(
      "running",
      `overlay-${state.state === "up" ? "silent" : "down"}`,
      state.reason ?? "it is down",
      LOG_FIX,
    );
  }
  if (socket === "live") return pass("running", "it has its socket, and goes on without an agent");
  if (socket === "stale") return fail("running", "overlay-down", "it has ended and left its socket", LOG_FIX);
  return skip("running", socket === undefined ? "access-denied" : "absent", "no overlay can be seen");
}

/** A file that was replaced under a running program is shown as deleted (proc_pid_exe(5)). Pure. */
export function programCheck(exe: string | undefined, pid: number): Check {
  if (exe === undefined) return skip("program", "access-denied", `the program of process ${pid} may not be looked at`);
  if (!exe.endsWith(" (deleted)")) return pass("program", exe);
  return warn(
    "program",
    "old-program",
    `process ${pid} runs a program that was replaced`,
    "it is taken over by the next one; 'systemctl restart holdfast-overlay' does it now",
  );
}

/** Finds connectors that should listen and do not. Pure. */
export function connectorChecks({ connectors }: Pick<ConnectorsReport, "connectors">): readonly Check[] {
  const wrong = connectors.filter(
    ({ state, reason }) => state !== "off" && (state !== "listening" || reason !== undefined),
  );
  if (wrong.length === 0) return [pass("connectors", `${connectors.length} are as they should be`)];
  return wrong
    .slice(0, MAX_NAMED)
    .map(({ id, state, reason }) =>
      (state === "failed" ? fail : warn)(
        `connector.${id}`.slice(0, 300),
        reason?.code ?? state,
        `${state}: ${reason?.message ?? "no reason is known"}`,
        "'holdfast connectors' shows all; correct it at the control plane, or what it listens on here",
      ),
    );
}

/** Finds gateway paths that are down. Pure. */
export function gatewayChecks({ gateways }: Pick<GatewaysReport, "gateways">): readonly Check[] {
  const paths = gateways.flatMap(({ fqdn, paths }) => paths.map((path) => ({ ...path, fqdn })));
  if (paths.length === 0) return [skip("gateways", "none", "this node dials no gateway")];
  const down = paths.filter(({ state }) => state !== "up");
  if (down.length === 0) return [pass("gateways", `${paths.length} of ${paths.length} paths are up`)];
  const isCut = down.length === paths.length;
  return down
    .slice(0, MAX_NAMED)
    .map(({ fqdn, id, state, reason }) =>
      (isCut ? fail : warn)(
        `gateway.${fqdn}${id === "" ? "" : `.${id}`}`.slice(0, 300),
        `path-${state}`,
        reason ?? `it is ${state}`,
        "see the checks of the network for this gateway",
      ),
    );
}

/** Judges the container engine and its unhealthy containers. Pure. */
export function containerChecks({
  engine,
  containers,
}: Pick<ContainersReport, "engine" | "containers">): readonly Check[] {
  if (engine.state === "unused") return [skip("engine", "unused", "nothing asks for it")];
  const unwell = containers.filter(({ state, health }) => state === "backoff" || health === "unhealthy");
  const engineCheck =
    engine.state === "well"
      ? pass("engine", `it answers; ${containers.length} containers are configured`)
      : engine.state === "unknown"
        ? skip("engine", "unknown", "it has not been asked yet")
        : fail(
            "engine",
            "engine-unavailable",
            engine.reason ?? "it does not answer",
            "install or start it ('systemctl start docker'), or name its socket by engineSocket in agent.json; or remove the containers",
          );
  return [
    engineCheck,
    ...unwell
      .slice(0, MAX_NAMED)
      .map(({ name, reason, health }) =>
        warn(
          `container.${name}`,
          health === "unhealthy" ? "unhealthy" : "not-running",
          reason ?? "it is not well",
          `'holdfast logs' and its own output say why`,
        ),
      ),
  ];
}
