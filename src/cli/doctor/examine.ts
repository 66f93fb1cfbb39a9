import { AgentError, toError } from "../../errors.ts";
import { hostExec } from "../../host/process/exec.ts";
import { isRoot } from "../../host/files/path-entry.ts";
import { hostReader } from "../../host/reader.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import { ContainersReport } from "../../protocol/local/containers.ts";
import { GatewaysReport } from "../../protocol/local/mesh.ts";
import { ConnectorsReport } from "../../protocol/local/overlay.ts";
import { Health, Status } from "../../protocol/local/answers.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { NetworkReport } from "../../protocol/local/network.ts";
import { WhyReport } from "../../protocol/documents/reconcile.ts";
import type { z } from "zod";
import { ask } from "../frame/client.ts";
import { networkChecksOf } from "../netcheck/netcheck.ts";
import type { Call } from "../frame/verb.ts";
import { fail, skip, verdictOf, type Check, type DoctorCheck, type DoctorReport } from "./result.ts";
import type { AgentAnswers, CheckFamily, DoctorTools } from "./tools.ts";

/** Time limit of one family of checks, in milliseconds. */
const FAMILY_MS = 30_000;

/** Runs all families concurrently. A family that fails does not affect the others. */
export async function examine(
  families: readonly CheckFamily[],
  tools: DoctorTools,
  familyMs = FAMILY_MS,
): Promise<DoctorReport> {
  const found = await Promise.all(families.map((family) => examineFamily(family, tools, familyMs)));
  tools.signal.throwIfAborted();
  const checks = found.flat();
  return { schema: 1, verdict: verdictOf(checks), checks };
}

async function examineFamily(
  family: CheckFamily,
  tools: DoctorTools,
  familyMs: number,
): Promise<readonly DoctorCheck[]> {
  const signal = withinTime(tools.signal, familyMs);
  const late = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(toError(signal.reason)), { once: true });
  });
  const run = async (): Promise<readonly Check[]> => family.run({ ...tools, signal });
  const checks = await Promise.race([run(), late]).catch((thrown: unknown) => [brokenCheck(toError(thrown), familyMs)]);
  return checks.map((check) =>
    Object.assign({ family: family.name }, check, { message: check.message.slice(0, 8192) }),
  );
}

/** Returns the result of a check that threw: a failure for a timeout or a bug, otherwise a skip. */
function brokenCheck(error: Error, familyMs: number): Check {
  if (error.name === "TimeoutError") {
    return fail(
      "check",
      "check-hangs",
      `timed out after ${familyMs / 1000} s`,
      "see what of the machine hangs: 'dmesg', 'ps -eo pid,stat,wchan:32,comm'",
    );
  }
  const code = error instanceof AgentError ? error.code : "check-failed";
  if (code === "access-denied" || code === "agent-unreachable") return skip("check", code, error.message);
  return fail("check", code, `the check failed: ${error.message}`, "'holdfast bundle', and report it");
}

/** Returns the tools for this machine; shared values are read once. */
export function doctorTools(call: Call): DoctorTools {
  const { settings, clock, signal, offline, values } = call;
  const config = typeof values["config"] === "string" ? values["config"] : undefined;
  const inspect = async () => {
    const inspectState = await offline.inspectState?.();
    if (inspectState === undefined) throw new Error("this build cannot read the state");
    return inspectState(settings.stateDir, config, settings.runDir);
  };
  return {
    stateDir: settings.stateDir,
    runDir: settings.runDir,
    clock,
    exec: hostExec(clock),
    reader: hostReader(),
    isRoot: isRoot(),
    signal,
    left: once(inspect),
    agent: once(() => askAgent(call)),
    network: once(() => networkChecksOf(call)),
  };
}

async function askAgent(call: Call): Promise<AgentAnswers> {
  let error: Error | undefined;
  const get = async <T>(path: string, schema: z.ZodType<T>): Promise<T | undefined> => {
    try {
      return await ask(call, { method: "GET", path, socket: READ_SOCKET }, schema);
    } catch (thrown) {
      call.signal.throwIfAborted();
      if (path === "/v1/status") error = toError(thrown);
      return undefined;
    }
  };
  const status = await get("/v1/status", Status);
  // Without a status, the other answers would fail in the same way.
  const getIfAnswering = <T>(path: string, schema: z.ZodType<T>): Promise<T | undefined> =>
    error === undefined ? get(path, schema) : Promise.resolve(undefined);
  const [health, why, connectors, gateways, containers, observed] = await Promise.all([
    getIfAnswering("/v1/health", Health),
    getIfAnswering("/v1/why", WhyReport),
    getIfAnswering("/v1/connectors", ConnectorsReport),
    getIfAnswering("/v1/gateways", GatewaysReport),
    getIfAnswering("/v1/containers", ContainersReport),
    getIfAnswering("/v1/network", NetworkReport),
  ]);
  return { error, status, health, why, connectors, gateways, containers, observed };
}

function once<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => (running ??= work());
}
