import { join } from "node:path";
import { hostDirectories } from "../../host/files/directories.ts";
import type { Exec } from "../../host/process/exec.ts";
import type { Files } from "../../host/files/files.ts";
import { valueOf } from "../../host/files/state-file.ts";
import { upgradeUnit } from "../../host/process/upgrade-unit.ts";
import { hostVersions } from "../../host/releases/versions.ts";
import { buildInfo, packageVersion } from "../../lib/build-info.ts";
import { UPGRADE_REQUEST_NAME } from "../../protocol/documents/release.ts";
import type { Applying } from "../applying/applying.ts";
import type { AgentSettings } from "../settings.ts";
import type { AgentState } from "../state.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import type { AgentSignals } from "./signals.ts";
import type { Telemetry } from "./telemetry.ts";
import { Upgrades, type UpgradesOptions } from "../upgrades/upgrades.ts";

export interface OpenUpgradesOptions extends Pick<UpgradesOptions, "clock" | "log" | "node" | "events"> {
  readonly settings: Pick<AgentSettings, "unit" | "runDir" | "upgrade">;
  readonly exec: Exec;
  readonly files: Files;
  readonly state: Pick<AgentState, "toldUpgrade">;
  readonly spool: Telemetry["spool"];
  readonly pusher: Telemetry["pusher"];
  readonly applying: Pick<Applying, "committing">;
  readonly dispatcher: Pick<Dispatcher, "holderOf">;
  readonly signals: Pick<AgentSignals, "registration" | "facts">;
}

/** Opens the requests for upgrades and the reports on them. */
export function openUpgrades(options: OpenUpgradesOptions, stack: AsyncDisposableStack): Upgrades {
  const { settings, exec, files, state, spool, pusher, applying, dispatcher, signals } = options;
  const { versionsDir: path, packageDir: packagePath, manifest } = settings.upgrade;
  const { signal } = new AbortController();
  const upgrades = new Upgrades({
    ...options,
    controlPlane: () => signals.registration.current?.controlPlane.iss,
    isNetworkPending: () => applying.committing.pending() !== undefined,
    ending: () => dispatcher.holderOf("node"),
    onChanged: () => signals.facts.set(),
    versions: hostVersions({ path, packagePath, files, directories: hostDirectories(), signal }),
    unit: upgradeUnit({
      exec,
      files,
      isManaged: settings.unit !== undefined,
      requestPath: join(settings.runDir, UPGRADE_REQUEST_NAME),
    }),
    version: packageVersion(buildInfo),
    manifest,
    audit: (audit) => {
      spool.append("audits", { ...audit });
      pusher.push();
    },
    lastReported: {
      load: async () => valueOf(await state.toldUpgrade.load())?.osUpdatedAt,
      save: (osUpdatedAt) => state.toldUpgrade.save({ osUpdatedAt }),
    },
  });
  stack.defer(() => upgrades.close());
  return upgrades;
}
