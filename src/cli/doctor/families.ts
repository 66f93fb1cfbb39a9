import { agentChecks, healthChecks } from "./agent.ts";
import { desiredChecks } from "./desired.ts";
import { firewallChecks, kernelChecks } from "./kernel.ts";
import { limitChecks, spoolChecks, timeChecks } from "./machine.ts";
import { networkChecks, resolverChecks } from "./network.ts";
import { engineChecks, overlayChecks } from "./overlay.ts";
import { settingsChecks, stateChecks } from "./state.ts";
import type { CheckFamily } from "./tools.ts";
import { unitChecks } from "./units.ts";
import { upgradeChecks } from "./upgrade.ts";

/** All families of checks, in the order of the report. */
export const families: readonly CheckFamily[] = [
  settingsChecks,
  stateChecks,
  unitChecks,
  agentChecks,
  healthChecks,
  desiredChecks,
  overlayChecks,
  engineChecks,
  networkChecks,
  resolverChecks,
  timeChecks,
  firewallChecks,
  kernelChecks,
  limitChecks,
  spoolChecks,
  upgradeChecks,
];
