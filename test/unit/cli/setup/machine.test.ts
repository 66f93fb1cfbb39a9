import { expect, test } from "vitest";
import { agentUnit } from "../../../../src/cli/setup/machine.ts";

test.each([
  ["of systemd's only hierarchy", "0::/system.slice/holdfast-agent.service\n", "holdfast-agent.service"],
  [
    "of several",
    "2:memory:/x/system.slice/holdfast-agent.service\n1:name=systemd:/m/system.slice/holdfast-agent.service\n0::/\n",
    "holdfast-agent.service",
  ],
  ["of a login", "0::/user.slice/user-0.slice/session-1.scope\n", undefined],
  ["of a container on it", "0::/system.slice/holdfast-agent.service/payload\n", undefined],
  ["of another hierarchy alone", "2:memory:/system.slice/holdfast-agent.service\n", undefined],
  ["of none", "", undefined],
])("the unit of an agent in control groups %s", (_, groups, unit) => {
  expect(agentUnit(groups)).toBe(unit);
});
