import { formatCount } from "../../lib/text/durations.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import { toolOutput, type CheckFamily } from "./tools.ts";

/** Units of a managed install, required and optional. */
export const UNITS = ["holdfast-agent.service", "holdfast-overlay.service", "holdfast-restore.service"] as const;
export const OTHER_UNITS = ["holdfast-upgrade.service", "holdfast-controller.service"] as const;
/** Units of an overlay's successors, one of which serves after an upgrade. */
export const SUCCESSORS = "holdfast-overlay@*.service";
/** Unit of updates of the operating system; only its journal is used. */
export const SYSTEM_UPDATE = "holdfast-os-update.service";
const PROPERTIES =
  "Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,WatchdogUSec,Type,ExecMainStatus,MemoryMax,LimitNOFILE";

export const unitChecks: CheckFamily = {
  name: "units",
  async run(tools) {
    if (tools.reader.list("/run/systemd/system") === undefined) {
      return [skip("systemd", "no-systemd", "this machine was not started by systemd")];
    }
    const names = [...UNITS, ...OTHER_UNITS, SUCCESSORS];
    const shown = await toolOutput(tools, "systemctl", ["show", "-p", PROPERTIES, "--", ...names]);
    if (shown === undefined) return [skip("systemd", "unknown", "systemctl does not answer")];
    return judgeUnits(parseUnits(shown));
  },
};

/** Parses the properties of each unit, by name, from `systemctl show`. */
export function parseUnits(text: string): ReadonlyMap<string, ReadonlyMap<string, string>> {
  const blocks = text.split(/\n\s*\n/).map((block) => {
    const pairs = block.split("\n").flatMap((line): (readonly [string, string])[] => {
      const at = line.indexOf("=");
      return at <= 0 ? [] : [[line.slice(0, at), line.slice(at + 1)]];
    });
    return new Map(pairs);
  });
  return new Map(blocks.flatMap((unit) => (unit.has("Id") ? [[unit.get("Id") ?? "", unit] as const] : [])));
}

/** Judges the properties of the units. Pure. */
export function judgeUnits(units: ReadonlyMap<string, ReadonlyMap<string, string>>): readonly Check[] {
  const isThere = (name: string): boolean => units.get(name)?.get("LoadState") === "loaded";
  if (!isThere("holdfast-agent.service"))
    return [skip("systemd", "not-managed", "systemd does not run the agent here")];
  const isOff = (name: string): boolean => units.get(name)?.get("ActiveState") === "inactive";
  const successors = [...units.keys()].filter((name) => name.startsWith("holdfast-overlay@") && !isOff(name));
  const isReplaced = (name: string): boolean =>
    name === "holdfast-overlay.service" && isOff(name) && successors.length > 0;
  const names = [...UNITS, ...OTHER_UNITS].flatMap((name) => (isReplaced(name) ? successors : [name]));
  return names.flatMap((name) => {
    const unit = units.get(name) ?? new Map<string, string>();
    if (!isThere(name)) {
      // An install without a data plane or a control plane of its own is a good one.
      return name === "holdfast-overlay.service" || OTHER_UNITS.some((other) => other === name)
        ? []
        : [fail(name, "unit-missing", `it is ${unit.get("LoadState") ?? "not there"}`, "install the package again")];
    }
    return judgeUnit(name, unit);
  });
}

function judgeUnit(name: string, unit: ReadonlyMap<string, string>): readonly Check[] {
  const get = (property: string): string => unit.get(property) ?? "";
  const restarts = Number(get("NRestarts")) || 0;
  const isAgent = name === "holdfast-agent.service";
  const log = `'journalctl -u ${name}' says why; 'systemctl restart ${name}' starts it`;
  if (get("ActiveState") === "failed") {
    return [fail(name, "unit-failed", `it failed: ${get("Result")}, exit status ${get("ExecMainStatus")}`, log)];
  }
  const isRunning = get("ActiveState") === "active" || get("SubState") === "exited";
  const checks: Check[] = [];
  if (isAgent && !isRunning)
    checks.push(fail(name, "unit-inactive", `it is ${get("ActiveState")} (${get("SubState")})`, log));
  else if (restarts > 0)
    checks.push(warn(name, "unit-restarted", `systemd started it again ${formatCount(restarts, "time")}`, log));
  else checks.push(pass(name, `${get("ActiveState")} (${get("SubState")})`));
  if (isAgent && !["enabled", "enabled-runtime", "static", "alias", "generated"].includes(get("UnitFileState"))) {
    checks.push(
      warn(
        `${name}.enabled`,
        "unit-disabled",
        `it is ${get("UnitFileState")}: it does not start with the machine`,
        `systemctl enable ${name}`,
      ),
    );
  }
  // systemd writes an interval of none as 0, and one without a limit as infinity.
  if (isAgent && get("Type") === "notify" && ["", "0", "infinity"].includes(get("WatchdogUSec"))) {
    checks.push(
      warn(
        `${name}.watchdog`,
        "no-watchdog",
        "no watchdog restarts an agent that hangs",
        "put WatchdogSec= back into the unit",
      ),
    );
  }
  return checks;
}
