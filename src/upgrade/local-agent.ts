import { request as httpRequest } from "node:http";
import type { z } from "zod";
import { SessionError } from "../errors.ts";
import { parseStrictJson } from "../lib/formats/strict-json.ts";
import { withinTime } from "../lib/async/within-time.ts";
import { ADMIN_SOCKET, LOCAL_REPLY_LIMITS, READ_SOCKET, socketPath } from "../protocol/local/api.ts";
import { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import {
  ConnectorsAnswer,
  ContainersAnswer,
  GatewaysAnswer,
  ServicesAnswer,
  StatusAnswer,
  viewOf,
  type AgentView,
} from "./agent-view.ts";

/** The agent of this machine, in any version. */
export interface LocalAgent {
  /** Returns its own report; undefined if it times out or sends an invalid response. */
  view(signal: AbortSignal): Promise<AgentView | undefined>;
  /** Makes it reread the state on disk; an agent that does not respond reads it at its start. */
  poke(signal: AbortSignal): Promise<void>;
}

const ANSWER_MS = 5000;
const POKE_MS = 2000;

/** Returns the agent that serves the sockets of a run directory. */
export function localAgent(runDir: string): LocalAgent {
  const get = async <T>(path: string, schema: z.ZodType<T>, signal: AbortSignal, socket = READ_SOCKET): Promise<T> =>
    schema.parse(parseStrictJson(await ask(runDir, socket, "GET", path, signal), LOCAL_REPLY_LIMITS));
  return {
    async view(signal) {
      const limit = withinTime(signal, ANSWER_MS);
      const orNone = <T>(answer: Promise<T>): Promise<T | undefined> => answer.catch(() => undefined);
      const [status, connectors, services, gateways, containers, targets] = await Promise.all([
        orNone(get("/v1/status", StatusAnswer, limit)),
        orNone(get("/v1/connectors", ConnectorsAnswer, limit)),
        orNone(get("/v1/services", ServicesAnswer, limit)),
        orNone(get("/v1/gateways", GatewaysAnswer, limit)),
        orNone(get("/v1/containers", ContainersAnswer, limit)),
        orNone(get("/v1/targets", NetworkTargets, limit, ADMIN_SOCKET)),
      ]);
      signal.throwIfAborted();
      return status && viewOf({ status, connectors, services, gateways, containers, targets });
    },
    async poke(signal) {
      const limit = withinTime(signal, POKE_MS);
      await ask(runDir, ADMIN_SOCKET, "POST", "/v1/wake", limit).catch(() => undefined);
      signal.throwIfAborted();
    },
  };
}

async function ask(
  runDir: string,
  socket: string,
  method: "GET" | "POST",
  path: string,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let size = 0;
  await new Promise<void>((resolve, reject) => {
    const headers = method === "POST" ? { "content-type": "application/json", "content-length": 0 } : {};
    const options = { socketPath: socketPath(runDir, socket), method, path, headers, agent: false, signal };
    const outgoing = httpRequest(options, (response) => {
      response.on("error", reject).once("end", resolve);
      response.on("data", (chunk: Buffer) => {
        size += chunk.byteLength;
        chunks.push(chunk);
        if (size > LOCAL_REPLY_LIMITS.maxBytes) outgoing.destroy(new SessionError("too-large", `${path}: too long`));
      });
      if (response.statusCode !== 200) {
        outgoing.destroy(new SessionError("refused", `${path}: status ${response.statusCode ?? 0}`));
      }
    });
    outgoing.on("error", reject).end();
  });
  return Buffer.concat(chunks);
}
