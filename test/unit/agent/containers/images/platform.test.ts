import { expect, test } from "vitest";
import { platformOf, runsOn } from "../../../../../src/agent/containers/images/platform.ts";

test.each([
  ["x86_64", "linux/amd64"],
  ["aarch64", "linux/arm64"],
  ["arm64", "linux/arm64"],
  ["armv7l", "linux/arm"],
  ["mips", ""],
  ["", ""],
  [undefined, ""],
])("requests images for a machine of %s as %s", (architecture, platform) => {
  expect(platformOf(architecture)).toBe(platform);
});

test.each([
  ["linux/amd64", "linux/amd64", true],
  ["linux/386", "linux/amd64", true],
  ["linux/arm", "linux/arm64", true],
  ["linux/arm64", "linux/amd64", false],
  ["linux/amd64", "linux/386", false],
  ["windows/amd64", "linux/amd64", false],
  [undefined, "linux/amd64", true],
  ["linux/amd64", "", true],
])("an image for %s runs on %s: %s", (image, machine, runs) => {
  expect(runsOn(image, machine)).toBe(runs);
});
