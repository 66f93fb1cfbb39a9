import { join } from "node:path";
import { AgentError } from "../../errors.ts";
import { readEntry, type PathEntry } from "../../host/files/path-entry.ts";
import { readPidFile } from "../../host/process/pid-file.ts";
import { buildInfo } from "../../lib/build-info.ts";
import { formatSpan } from "../../lib/text/durations.ts";
import { ADMIN_SOCKET, READ_SOCKET } from "../../protocol/local/api.ts";
import type { Health, Status } from "../../protocol/local/answers.ts";
import { isAbsent } from "../frame/client.ts";
import { IDENTITY_LOST, identityLostFix } from "../../protocol/local/identity-lost.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

export const agentChecks: CheckFamily = {
  name: "agent",
  async run({ agent, runDir, clock }) {
    const { error, status } = await agent();
    const sockets = [READ_SOCKET, ADMIN_SOCKET].map((name) => socketCheck(name, readEntry(join(runDir, name))));
    const answer = answerCheck(error, await readPidFile(runDir, "agent"));
    if (status === undefined) return [answer, ...sockets];
    return [
      answer,
      ...sockets,
      versionCheck(status, buildInfo),
      sessionCheck(status, clock.now()),
      ...faultChecks(status),
    ];
  },
};

/** Checks by the agent itself. */
export const healthChecks: CheckFamily = {
  name: "health",
  async run({ agent }) {
    const { health, status } = await agent();
    if (health === undefined) return [skip("agent", "no-agent", "no agent reports it")];
    // A node that was never registered is not ill.
    const isNew = status?.node === null;
    return health.items.map((item) =>
      healthCheck(isNew && item.name === "control-plane" ? { ...item, status: "warn" } : item),
    );
  },
};

/** Reports whether the agent answers, hangs or is absent. Pure. */
export function answerCheck(error: Error | undefined, pid: number | undefined): Check {
  const who = pid === undefined ? "" : `; process ${pid} has its run directory`;
  if (error === undefined) return pass("running", pid === undefined ? "it answers" : `it answers as process ${pid}`);
  if (isAbsent(error)) {
    return fail(
      "running",
      "agent-absent",
      `${error.message}${who}`,
      "start it: 'systemctl start holdfast-agent', and see its log",
    );
  }
  const reason = error instanceof AgentError ? error.details?.["reason"] : undefined;
  if (reason === "EACCES" || reason === "EPERM") return skip("running", "access-denied", error.message);
  const code = error instanceof AgentError && error.code === "timeout" ? "agent-silent" : "agent-unwell";
  return fail("running", code, `${error.message}${who}`, "'holdfast bundle' first, then restart it");
}

function socketCheck(name: string, entry: PathEntry | "absent" | "denied"): Check {
  if (entry === "denied") return skip(name, "access-denied", "no permission to read it: run the command with sudo");
  if (entry === "absent") return skip(name, "absent", "it is not there: no agent has made it");
  const isWell = entry.kind === "socket" && (entry.mode & 0o007) === 0;
  if (isWell) return pass(name, `mode ${entry.mode.toString(8)}`);
  return fail(
    name,
    "unsafe-socket",
    `it is ${entry.kind === "socket" ? "open to everybody" : "no socket"}`,
    "restart the agent",
  );
}

/** Compares the running version with the installed one. Pure. */
export function versionCheck({ version, build }: Pick<Status, "version" | "build">, here: typeof buildInfo): Check {
  const runs = `${version} (${build})`;
  if (version === here.version && build === here.build) return pass("version", `${runs}, as this command`);
  return warn(
    "version",
    "other-version",
    `it is ${runs}, and this command ${here.version} (${here.build})`,
    "restart the agent, unless an upgrade is just being judged: 'holdfast status' shows it",
  );
}

/** Judges the session. Pure. */
export function sessionCheck(
  { session, node, deletedAt }: Pick<Status, "session" | "node" | "deletedAt">,
  now: number,
): Check {
  const since = formatSpan(now - session.since);
  const why = session.reason === undefined ? "" : `: ${session.reason.message}`;
  if (session.state === "online") return pass("session", `online ${since}`);
  if (node === null)
    return warn("session", "not-registered", "this node is not registered", "'holdfast register <license>'");
  const code = session.reason?.code ?? "offline";
  const isLost = code === IDENTITY_LOST.code;
  const isOver = isLost || code === "deleted" || deletedAt !== undefined;
  return (isOver ? fail : warn)(
    "session",
    code,
    `${session.state} ${since}${why}`,
    isLost
      ? identityLostFix({})
      : isOver
        ? "'holdfast reset', then register with a new license"
        : "see the checks of the network; the node tries again by itself",
  );
}

function faultChecks({ faults }: Status): readonly Check[] {
  const open = faults.filter(({ mendedAt }) => mendedAt === undefined);
  if (open.length === 0) return [pass("faults", "nothing is wrong that was not mended")];
  return open.map(({ code, message }) =>
    warn(`faults.${code}`, code, message, "'holdfast health' and the agent's log say more"),
  );
}

function healthCheck({ name, status, message, fix }: Health["items"][number]): Check {
  const todo = fix ?? "'holdfast health' and the agent's log say more";
  switch (status) {
    case "pass":
      return pass(name, message);
    case "warn":
      return warn(name, `${name}-warning`.slice(0, 64), message, todo);
    case "fail":
      return fail(name, `${name}-failed`.slice(0, 64), message, todo);
    case "unknown":
      return skip(name, "unknown", message);
  }
}
