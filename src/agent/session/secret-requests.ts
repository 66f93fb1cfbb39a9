import { SessionError } from "../../errors.ts";
import { ANSWER_MS, withinTime } from "../../lib/async/within-time.ts";
import type { Signal } from "../../lib/async/signal.ts";
import type { Registration } from "../identity/identity.ts";
import type { Connection, ControlPlaneRpc } from "./attempt.ts";

export interface SecretRequestsOptions {
  readonly registration: Pick<Signal<Registration | undefined>, "current">;
  readonly connection: Pick<Signal<Connection | undefined>, "current">;
}

/** Requests secrets from the control plane. Each returns undefined while the node is not registered, and rejects `offline` without a session. */
export interface SecretRequests {
  /** Requests a short-lived credential for one repository of the platform's registry. */
  registryToken(
    repository: string,
    signal: AbortSignal,
  ): Promise<{ readonly username: string; readonly password: string }> | undefined;
  /** Requests the key of an encrypted volume of this node. */
  volumeKey(volume: string, signal: AbortSignal): Promise<string> | undefined;
}

export function secretRequests({ registration, connection }: SecretRequestsOptions): SecretRequests {
  async function request<T>(
    signal: AbortSignal,
    send: (rpc: ControlPlaneRpc, limit: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { current } = connection;
    if (current === undefined) throw new SessionError("offline", "no session with the control plane");
    return send(current.rpc, withinTime(AbortSignal.any([signal, current.signal]), ANSWER_MS));
  }
  return {
    registryToken(repository, signal) {
      if (registration.current === undefined) return undefined;
      return request(signal, (rpc, limit) => rpc.request("registry.token", { repository }, limit));
    },
    volumeKey(volume, signal) {
      if (registration.current === undefined) return undefined;
      return request(signal, async (rpc, limit) => (await rpc.request("volume.key", { volume }, limit)).key);
    },
  };
}
