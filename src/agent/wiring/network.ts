import type { Clock } from "../../host/clock.ts";
import type { OnDamage } from "../../host/files/damage.ts";
import type { Dialler } from "../../host/net/dial.ts";
import { readDmi } from "../../host/machine/dmi.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { Files } from "../../host/files/files.ts";
import { MachineOwner } from "../../host/machine/machine-owner.ts";
import { forwardDrops } from "../../host/network/firewall/forward-drops.ts";
import { networkDriver, type NetworkDriver } from "../../host/network/driver.ts";
import { watchRuleset } from "../../host/network/firewall/ruleset-watch.ts";
import { networkRecord } from "../../host/network/state/record.ts";
import { sourceFilterDriver, type SourceFilterDriver } from "../../host/network/firewall/source-filter.ts";
import { toolRunner } from "../../host/network/ip/tool.ts";
import type { Reader } from "../../host/reader.ts";
import { carryingDialler } from "../session/carrier.ts";
import { startForwardWatch } from "../network/forward-watch.ts";
import type { SectionDeps } from "./sections.ts";
import type { AgentSignals } from "./signals.ts";
import { unsupportedHere } from "../profile.ts";
import { CONNECTORS_TABLE } from "../sections/connectors/source-filter.ts";
import type { AgentSettings } from "../settings.ts";
import { vendorOf } from "../shadow/device.ts";
import { startTableWatch } from "../network/table-watch.ts";

export interface NetworkParts {
  readonly driver: NetworkDriver;
  readonly owner: MachineOwner;
  /** Dials the control session only. */
  readonly dialler: Dialler;
  /** Collaborators of the section `network`. */
  readonly section: SectionDeps["network"];
  /** Drops packets from sources that the section `connectors` does not allow. */
  readonly sourceFilter: SourceFilterDriver;
}

export interface OpenNetworkOptions {
  readonly clock: Clock;
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "stateDir" | "runDir" | "unit" | "profile">;
  readonly dialler: Dialler;
  readonly onDamage: OnDamage;
  readonly signals: Pick<AgentSignals, "surroundings">;
}

/** Opens the machine's network, and claims it unless another node of this network namespace owns it. */
export async function openNetwork(options: OpenNetworkOptions, stack: AsyncDisposableStack): Promise<NetworkParts> {
  const { clock, exec, files, reader, settings, onDamage, signals } = options;
  const { stateDir, runDir, unit } = settings;
  const reevaluate = (cause: string, sections: readonly string[]) => () =>
    signals.surroundings.set({ cause, sections });
  const owner = new MachineOwner({ clock, onOwned: reevaluate("owner", ["network", "exec"]) });
  stack.defer(() => owner.close());
  const reason = unsupportedHere(settings.profile);
  if (reason === undefined) await owner.claim();
  const dialler = carryingDialler(options.dialler);
  const isManaged = unit !== undefined;
  const driver = networkDriver({ exec, files, reader, clock, stateDir, runDir, isManaged, onDamage });
  const onForwarding = reevaluate("forwarding", ["network"]);
  const forwarding = startForwardWatch({ clock, read: forwardDrops(exec), watchRuleset, onChange: onForwarding });
  const table = startTableWatch({ clock, watchRuleset, onChange: reevaluate("table", ["network"]) });
  stack.defer(() => table.close());
  stack.defer(() => forwarding.close());
  const section = {
    forwardDrops: (isForwarding: boolean) => forwarding.drops(isForwarding),
    readingTable: (isOurs: boolean) => table.reading(isOurs),
    driver,
    record: networkRecord(files, stateDir, onDamage),
    carrier: () => dialler.carrier(),
    vendor: () => vendorOf(readDmi(reader)),
    unsupported: () => reason ?? (owner.isOwner ? undefined : "another node owns this machine"),
  };
  return {
    driver,
    owner,
    dialler,
    section,
    sourceFilter: sourceFilterDriver({
      tools: toolRunner(exec),
      table: CONNECTORS_TABLE,
      unsupported: section.unsupported,
    }),
  };
}
