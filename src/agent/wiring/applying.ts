import type { Random } from "../../lib/async/backoff.ts";
import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import type { OnDamage } from "../../host/files/damage.ts";
import type { Files } from "../../host/files/files.ts";
import type { Dialler } from "../../host/net/dial.ts";
import { systemResolve } from "../../host/net/system-resolve.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import { hostDeadMan } from "../../host/process/dead-man.ts";
import type { Exec } from "../../host/process/exec.ts";
import { ownProcess } from "../../host/process/process-tree.ts";
import type { Reader } from "../../host/reader.ts";
import type { ReadDomain } from "../../protocol/documents/domain-view.ts";
import { AcceptedDocuments } from "../applying/accepted-documents.ts";
import { Applying } from "../applying/applying.ts";
import { proof } from "../applying/proof.ts";
import type { KnownAddresses } from "../identity/known-addresses.ts";
import { networkTargets } from "../network/targets.ts";
import type { AgentSettings } from "../settings.ts";
import type { Desired, DesiredDocuments } from "../shadow/desired.ts";
import type { EventLog } from "../telemetry/events.ts";
import type { OpenedCompute } from "./containers/compute.ts";
import type { NetworkParts } from "./network.ts";
import { listSections } from "./sections.ts";
import type { AgentSignals } from "./signals.ts";

export interface OpenApplyingOptions {
  readonly settings: AgentSettings;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly files: Files;
  readonly reader: Reader;
  readonly exec: Exec;
  readonly dialler: Dialler;
  readonly bootId: string;
  readonly documents: DesiredDocuments;
  readonly domain: ReadDomain;
  readonly addresses: Pick<KnownAddresses, "list">;
  readonly events: EventLog;
  readonly overlay: Overlay;
  readonly network: Pick<NetworkParts, "section" | "sourceFilter">;
  readonly computing: Pick<OpenedCompute, "section">;
  readonly signals: AgentSignals;
  readonly onFault: (code: string, message: string) => void;
  readonly onDamage: OnDamage;
}

/** Opens the engine with every section of this node, and the owner of the documents that it applies. */
export function openApplying(
  options: OpenApplyingOptions,
  stack: AsyncDisposableStack,
): { readonly applying: Applying; readonly accepted: AcceptedDocuments } {
  const { settings, exec, dialler, bootId, addresses, overlay, network, computing, signals } = options;
  const { stateDir, runDir, unit, profile, literals } = settings;
  const { section, sourceFilter } = network;
  const deps = { ...options, profile, literals, network: section, sourceFilter, exec: computing.section };
  const startDeadMan = hostDeadMan(exec);
  const applying = new Applying({
    ...options,
    sections: listSections(deps),
    sectionsOf: (current: Desired) => listSections({ ...deps, documents: { current } }),
    commit: {
      bootId,
      owner: ownProcess(),
      prover: proof({
        dialler,
        resolve: systemResolve(),
        targets: () => networkTargets(signals.registration.current, settings, overlay.view.mesh),
        knownAddresses: () => addresses.list,
        hasSession: () => signals.connection.current !== undefined,
        gatewaysUp: () =>
          (overlay.view.standing?.paths ?? []).flatMap(({ gateway, state }) => (state === "up" ? [gateway] : [])),
      }),
      watch: (id, waitMs, signal) =>
        startDeadMan({ stateDir, runDir, isManaged: unit !== undefined, id, waitMs }, signal),
      // The session's socket may use a route that is gone.
      onProven: () => signals.session.current?.wake("network"),
    },
  });
  stack.defer(() => applying.close());
  const accepted = new AcceptedDocuments({ ...options, applying });
  signals.surroundings.changed(({ cause, sections }) => applying.engine.reevaluate(cause, sections));
  signals.connection.changed((connection) => {
    if (connection === undefined) return;
    accepted.setDeleted(false);
    applying.committing.commit.sessionOpened();
  });
  return { applying, accepted };
}
