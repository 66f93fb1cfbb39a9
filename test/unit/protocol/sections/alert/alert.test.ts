import { describe, expect, it } from "vitest";
import { AlertSection, alertNotices } from "../../../../../src/protocol/sections/alert/alert.ts";
import { APPLIANCE } from "../../../../support/control-plane/example-documents.ts";
import { closedSection } from "../../../../support/sections.ts";

const disk = { id: "t1", name: "disk", telemetry: "disk", max: 85, exceededWindow: 5, exceededWindowUnit: "minutes" };
const with1 = (more: object) => ({ enabled: true, thresholds: [{ ...disk, ...more }] });
const METRICS = "cpu, ram, disk, heap, embflows, latency, bandwidthIn, bandwidthOut, tcpResets, vpnFlows";
const ONLY = "has no place beside this telemetry: only latency, bandwidthIn, bandwidthOut have a target";

describe("the section alert", () => {
  closedSection("alert", AlertSection, {
    good: [
      APPLIANCE.alert,
      {},
      { enabled: false },
      { enabled: null, thresholds: null },
      { enabled: true, thresholds: [] },
      ...["cpu", "ram", "heap", "embflows", "tcpResets", "vpnFlows"].map((telemetry) => with1({ telemetry })),
      with1({ telemetry: "latency", target: "hq-gw", max: 500 }),
      with1({ telemetry: "latency", target: "hq-gw.example.net" }),
      with1({ telemetry: "bandwidthIn", target: "ens192" }),
      with1({ telemetry: "bandwidthOut", target: "ens192.30", exceededWindow: 720, exceededWindowUnit: "hours" }),
      with1({ target: "", command: "notify" }),
      with1({ target: null, command: null, max: 120, exceededWindow: 1.5 }),
      with1({ id: "0d8c5a52-57a6-4a55-9d0b-6a1d5d0f9c01", max: -1, requires: ["later"], exceededWindow: 43_200 }),
      { thresholds: [disk, { ...disk, id: "t2" }] },
    ],
    bad: [
      [{ enabled: "yes" }, "alert.enabled: must be true or false"],
      [{ thresholds: {} }, "alert.thresholds: must be an array"],
      [
        { thresholds: Array.from({ length: 1001 }, (_, at) => ({ ...disk, id: `t${at}` })) },
        "alert.thresholds: must be at most 1000",
      ],
      [{ thresholds: [7] }, "alert.thresholds.0: must be an object"],
      [{ rules: [] }, "alert.rules: is not a known field"],
      [
        { thresholds: [{}] },
        ...["id", "name", "telemetry", "max", "exceededWindow", "exceededWindowUnit"].map(
          (field) => `alert.thresholds.0.${field}: is required`,
        ),
      ],
      [with1({ id: "" }), "alert.thresholds.0.id: must not be empty"],
      [with1({ name: "a\nb" }), "alert.thresholds.0.name: must not have control characters"],
      [with1({ name: "n".repeat(257) }), "alert.thresholds.0.name: must have at most 256 characters"],
      [with1({ telemetry: "CPU" }), `alert.thresholds.0.telemetry: must be one of ${METRICS}`],
      [with1({ max: "85" }), "alert.thresholds.0.max: must be a number"],
      [with1({ exceededWindow: 0 }), "alert.thresholds.0.exceededWindow: must be at least 1"],
      [
        with1({ exceededWindow: 43_201 }),
        "alert.thresholds.0.exceededWindow: must be at most 43200 minutes, which are 30 days",
      ],
      [
        with1({ exceededWindow: 721, exceededWindowUnit: "hours" }),
        "alert.thresholds.0.exceededWindow: must be at most 720 hours, which are 30 days",
      ],
      [with1({ exceededWindowUnit: "days" }), "alert.thresholds.0.exceededWindowUnit: must be one of minutes, hours"],
      [with1({ telemetry: "latency" }), "alert.thresholds.0.target: is required with telemetry latency"],
      [
        with1({ telemetry: "bandwidthIn", target: "" }),
        "alert.thresholds.0.target: is required with telemetry bandwidthIn",
      ],
      [
        with1({ telemetry: "latency", target: "no node" }),
        "alert.thresholds.0.target: must be the name of a node or a cluster",
      ],
      [
        with1({ telemetry: "bandwidthOut", target: "not/a-nic" }),
        "alert.thresholds.0.target: must be the name of a network interface",
      ],
      [with1({ target: "ens192" }), `alert.thresholds.0.target: ${ONLY}`],
      [with1({ command: 7 }), "alert.thresholds.0.command: must be text"],
      [with1({ level: "ERROR" }), "alert.thresholds.0.level: is not a known field"],
      [{ thresholds: [disk, { ...disk, name: "b" }] }, "alert.thresholds.1.id: is the id of thresholds.0 already"],
      [
        { thresholds: [{ ...disk, max: "1", telemetry: "latency" }] },
        "alert.thresholds.0.max: must be a number",
        "alert.thresholds.0.target: is required with telemetry latency",
      ],
    ],
  });

  it("reports thresholds outside of a percentage", () => {
    const thresholds = [85, 0, 100, 100.5, -1].map((max) => ({ telemetry: "disk", max }));
    const notices = alertNotices({ thresholds: [...thresholds, { telemetry: "embflows", max: 5000 }] });
    expect(notices.map(({ message }) => message)).toEqual([
      "alert.thresholds.3.max: 100.5 is outside of a percentage, and never fires",
      "alert.thresholds.4.max: -1 is outside of a percentage, and always fires",
    ]);
    expect(alertNotices({})).toEqual([]);
  });
});
