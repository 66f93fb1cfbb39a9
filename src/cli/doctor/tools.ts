import type { Clock } from "../../host/clock.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { Reader } from "../../host/reader.ts";
import type { Health, Status } from "../../protocol/local/answers.ts";
import type { ContainersReport } from "../../protocol/local/containers.ts";
import type { GatewaysReport } from "../../protocol/local/mesh.ts";
import type { ConnectorsReport } from "../../protocol/local/overlay.ts";
import type { NetworkReport } from "../../protocol/local/network.ts";
import type { LeftState } from "../../protocol/local/left-state.ts";
import type { WhyReport } from "../../protocol/documents/reconcile.ts";
import type { NetworkCheck } from "../netcheck/result.ts";
import type { Check } from "./result.ts";

/** Reports of the agent; `error` is set if it does not answer. */
export interface AgentAnswers {
  readonly error: Error | undefined;
  readonly status: Status | undefined;
  readonly health: Health | undefined;
  readonly why: WhyReport | undefined;
  readonly connectors: ConnectorsReport | undefined;
  readonly gateways: GatewaysReport | undefined;
  readonly containers: ContainersReport | undefined;
  readonly observed: NetworkReport | undefined;
}

/** Context of the checks. */
export interface DoctorTools {
  readonly stateDir: string;
  readonly runDir: string;
  readonly clock: Clock;
  readonly exec: Exec;
  readonly reader: Reader;
  readonly isRoot: boolean;
  readonly signal: AbortSignal;
  /** State of the agent on disk. */
  readonly left: () => Promise<LeftState>;
  readonly agent: () => Promise<AgentAnswers>;
  readonly network: () => Promise<readonly NetworkCheck[]>;
}

/** Checks of one kind; an error of one family does not affect the others. */
export interface CheckFamily {
  readonly name: string;
  run(tools: DoctorTools): Promise<readonly Check[]>;
}

const MAX_OUTPUT_BYTES = 1024 * 1024;
const TOOL_MS = 5000;

/** Returns the output of a tool; undefined if it is missing or fails. */
export async function toolOutput(
  { exec, signal }: Pick<DoctorTools, "exec" | "signal">,
  file: string,
  args: readonly string[],
): Promise<string | undefined> {
  try {
    const options = { signal, deadlineMs: TOOL_MS, maxOutputBytes: MAX_OUTPUT_BYTES };
    const { exitCode, stdout } = await exec.run(file, args, options);
    return exitCode === 0 ? stdout : undefined;
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}
