import { describe, expect, test } from "vitest";
import { imageReference } from "../../../../../src/agent/sections/exec/image-reference.ts";

const REGISTRY = { host: "registry.platform.example:5000", namespace: "acme.example" };
const DIGEST = `sha256:${"ab".repeat(32)}`;

const referenceOf = (repository: string, tag: string, registry: typeof REGISTRY | undefined = REGISTRY) =>
  imageReference({ repository, tag }, registry);

describe("an image of the organization", () => {
  test.each([
    ["acme.example/api", "1", "registry.platform.example:5000/acme.example/api:1"],
    ["acme.example/team/sub/api", "1.4.2", "registry.platform.example:5000/acme.example/team/sub/api:1.4.2"],
    ["Acme.Example/api", "1", "registry.platform.example:5000/acme.example/api:1"],
    ["registry.platform.example:5000/acme.example/api", "1", "registry.platform.example:5000/acme.example/api:1"],
    ["registry.platform.example:5000/other.example/api", "1", "registry.platform.example:5000/other.example/api:1"],
    ["acme.example/api", DIGEST, `registry.platform.example:5000/acme.example/api@${DIGEST}`],
    ["acme.example/api", `1.4@${DIGEST}`, `registry.platform.example:5000/acme.example/api@${DIGEST}`],
    ["acme.example/api", `@${DIGEST}`, `registry.platform.example:5000/acme.example/api@${DIGEST}`],
    ["acme.example/api", "", "registry.platform.example:5000/acme.example/api:latest"],
  ])("%s %s is in its registry", (repository, tag, reference) => {
    expect(referenceOf(repository, tag)).toEqual({
      reference,
      isFromRegistry: true,
      isPinned: reference.includes("@"),
    });
  });

  test("is distinguished from the host when both are the same domain", () => {
    const registry = { host: "acme.example", namespace: "acme.example" };
    expect(referenceOf("acme.example/api", "1", registry)).toMatchObject({
      reference: "acme.example/acme.example/api:1",
    });
    expect(referenceOf("acme.example/acme.example/api", "1", registry)).toMatchObject({
      reference: "acme.example/acme.example/api:1",
    });
  });
});

describe("a public image", () => {
  test.each([
    ["busybox", "1", "busybox:1"],
    ["vendor/image", "1", "vendor/image:1"],
    ["ghcr.io/vendor/image", "1", "ghcr.io/vendor/image:1"],
    ["localhost:5000/a/b", "1", "localhost:5000/a/b:1"],
    ["docker.io/library/busybox", "1", "busybox:1"],
    ["docker.io/vendor/image", "1", "vendor/image:1"],
    ["index.docker.io/busybox", "1", "busybox:1"],
    ["library/busybox", "1", "busybox:1"],
    ["other.example/api", "1", "other.example/api:1"],
    ["acme.example.evil/api", "1", "acme.example.evil/api:1"],
  ])("%s stays unchanged", (repository, tag, reference) => {
    expect(referenceOf(repository, tag)).toEqual({ reference, isFromRegistry: false, isPinned: false });
  });

  test("is the only kind without a registry", () => {
    expect(imageReference({ repository: "acme.example/api", tag: "1" }, undefined)).toMatchObject({
      reference: "acme.example/api:1",
      isFromRegistry: false,
    });
  });
});

test.each([
  ["", "1"],
  ["/api", "1"],
  ["acme.example/", "1"],
  ["acme.example//api", "1"],
  ["vendor/Image", "1"],
  ["vendor/image:1", "1"],
  [`vendor/image@${DIGEST}`, "1"],
  ["vendor/../image", "1"],
  ["vendor/image?x=1", "1"],
  ["a b", "1"],
  ["https://ghcr.io/x", "1"],
  [`vendor/${"a".repeat(255)}`, "1"],
  ["busybox", "1/2"],
  ["busybox", "-1"],
  ["busybox", "sha256:abc"],
  ["busybox", "a".repeat(129)],
])("refuses %j with the tag %j", (repository, tag) => {
  expect(referenceOf(repository, tag)).toMatchObject({
    refused: expect.stringMatching(/^image (?:repository|tag) "/) as unknown,
  });
});
