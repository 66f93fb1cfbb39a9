import { hostDeadMan } from "../../host/process/dead-man.ts";
import type { Dialler } from "../../host/net/dial.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import { ownProcess } from "../../host/process/process-tree.ts";
import { systemResolve } from "../../host/net/system-resolve.ts";
import type { ApplyingOptions } from "../applying/applying.ts";
import type { Registration } from "../identity/identity.ts";
import { networkTargets } from "../network/targets.ts";
import { proof } from "../applying/proof.ts";
import type { Session } from "../session/session.ts";
import type { AgentSettings } from "../settings.ts";

export interface OpenCommitOptions {
  readonly settings: Pick<AgentSettings, "stateDir" | "runDir" | "unit" | "proxies" | "hosts">;
  readonly exec: Exec;
  readonly dialler: Dialler;
  readonly bootId: string;
  readonly overlay: Pick<Overlay, "view">;
  readonly registration: () => Registration | undefined;
  readonly knownAddresses: () => readonly string[];
  readonly session: () => Session | undefined;
}

/** What a change is proven by on this machine, and who watches it. */
export function openCommit(options: OpenCommitOptions): ApplyingOptions["commit"] {
  const { settings, exec, dialler, bootId, overlay, registration, knownAddresses, session } = options;
  const { stateDir, runDir, unit } = settings;
  const start = hostDeadMan(exec);
  return {
    bootId,
    owner: ownProcess(),
    prover: proof({
      dialler,
      resolve: systemResolve(),
      targets: () => networkTargets(registration(), settings, overlay.view.mesh),
      knownAddresses,
      hasSession: () => session()?.connection !== undefined,
      gatewaysUp: () =>
        (overlay.view.standing?.paths ?? []).flatMap(({ gateway, state }) => (state === "up" ? [gateway] : [])),
    }),
    watch: (id, waitMs, signal) => start({ stateDir, runDir, isManaged: unit !== undefined, id, waitMs }, signal),
    // Its old socket may lead nowhere any more.
    onProven: () => session()?.wake("network"),
  };
}
