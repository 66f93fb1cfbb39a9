import { join } from "node:path";
import { FaultProxy } from "./network/fault-proxy.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
  type ProgramOptions,
} from "./machine/programs.ts";
import { waitFor } from "./wait-for.ts";
import type { Status } from "../../src/protocol/local/answers.ts";

/** A controller and a node that reaches it only through a proxy. */
export interface Stage {
  readonly dir: string;
  readonly uid: string;
  readonly port: number;
  readonly proxy: FaultProxy;
  readonly controller: ControllerProgram;
  readonly agent: AgentProgram;
  /** Further options of restarted controllers besides directory and port. */
  readonly options: readonly string[];
}

export interface StageOptions {
  /** The host name of the origin; 127.0.0.1 by default. */
  readonly host?: string;
  readonly isTls?: boolean;
  readonly agent?: ProgramOptions & { readonly more?: readonly string[] };
  /** Further options of the controller. */
  readonly controller?: readonly string[];
  /** Registers what ends all of it: when the test has finished, by default. */
  readonly onFinished?: (end: () => void) => void;
}

/** Starts all three and registers the node. */
export async function startStage(dir: string, given: StageOptions = {}): Promise<Stage> {
  const { host = "127.0.0.1", isTls = false, agent: starting = {}, controller: more = [] } = given;
  const ends = given.onFinished === undefined ? {} : { onFinished: given.onFinished };
  const port = await freePort();
  const proxy = await FaultProxy.start(await freePort(), port, "127.0.0.1", given.onFinished);
  const origin = `${isTls ? "https" : "http"}://${host}:${proxy.port}`;
  const options = ["--url", origin, ...(isTls ? ["--tls"] : []), ...more];
  const controller = await startController(dir, port, options, ends);
  const agent = await startAgent(join(dir, "node"), { ...ends, ...starting });
  const uid = await registerNode(controller, agent, "node");
  // The controller has a session before the node has verified its side of it.
  await untilOnline(agent);
  return { dir, uid, port, proxy, controller, agent, options };
}

/** Makes a waiting node reconnect at once. */
export function wake({ process }: AgentProgram): void {
  process.kill("SIGHUP");
}

/** Waits for a status that satisfies `check`. */
export function statusWhere(
  agent: AgentProgram,
  what: string,
  check: (status: Status) => boolean,
  limitMs = 120_000,
): Promise<Status> {
  let seen = "nothing";
  const look = async (): Promise<Status | undefined> => {
    const status = await agent.status();
    seen = JSON.stringify(status.session);
    return check(status) ? status : undefined;
  };
  return waitFor(what, look, limitMs).catch((error: unknown) => {
    throw new Error(`${what}: the last that was seen is ${seen}`, { cause: error });
  });
}

export function untilOnline(agent: AgentProgram, limitMs = 180_000): Promise<Status> {
  return statusWhere(agent, "the node is online", ({ session }) => session.state === "online", limitMs);
}

/** Waits until the node reports that it has no session, for this reason. */
export function untilReason(agent: AgentProgram, codes: readonly string[], limitMs = 120_000): Promise<Status> {
  return statusWhere(
    agent,
    `the node waits because of ${codes.join(" or ")}`,
    ({ session }) => session.state !== "online" && codes.includes(session.reason?.code ?? ""),
    limitMs,
  );
}

/**
 * Runs `lose`, which ends the session, and waits for another, waking the node when it waits. The state in between may be too short to be
 * seen: the first attempt follows after a random time, possibly zero.
 */
export async function untilAnotherSession(agent: AgentProgram, lose: () => void): Promise<Status> {
  const { sid } = (await untilOnline(agent)).session;
  lose();
  return statusWhere(agent, "the node has another session", ({ session }) => {
    if (session.state === "waiting") wake(agent);
    return session.state === "online" && session.sid !== sid;
  });
}

/** Returns the types of the controller's events of a node, oldest first. */
export async function eventsOf(
  controller: ControllerProgram,
  uid: string,
): Promise<readonly { readonly eventType: string; readonly details?: unknown; readonly message?: string }[]> {
  const { body } = await controller.call("GET", `/v2/event/${uid}?limit=100&sort=timestamp:asc`);
  return body as { eventType: string }[];
}
