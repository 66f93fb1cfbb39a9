import { expect, test } from "vitest";
import { containerImage } from "../../../../../src/agent/triggers/containers/container-image.ts";
import { HostError, InputError } from "../../../../../src/errors.ts";
import { FakeCompute } from "../../../../support/containers/fake-compute.ts";
import { rig } from "../rig.ts";

function stage() {
  const compute = new FakeCompute();
  const audits: string[] = [];
  const registryHost = (): string => "registry.example:5000";
  const { run } = rig([containerImage({ compute: () => compute, registryHost, audit: (what) => audits.push(what) })]);
  return { compute, audits, ask: (body: unknown) => run("container-image", { body }) };
}
const remove = (image: string) => ({ action: "delete", image });

test("lists images by their names in definitions", async () => {
  const { compute, ask } = stage();
  const image = { id: "sha256:1", digests: [], sizeBytes: 1, createdAt: 1 };
  compute.imageList = [
    { ...image, tags: ["registry.example:5000/acme.example/team/web:1.2", "busybox:latest"] },
    { ...image, tags: ["other.example:5000/web:2"] },
    { ...image, tags: [] },
  ];
  expect(await ask({ action: "list" })).toEqual({
    body: {
      images: [
        { name: "acme.example/team/web", tag: "1.2" },
        { name: "busybox", tag: "latest" },
        { name: "other.example:5000/web", tag: "2" },
      ],
    },
  });
});

test("splits a reference at its last slash", async () => {
  const { compute, audits, ask } = stage();
  expect(await ask(remove("acme.example/team/web/1.2"))).toEqual({ body: { success: "Successful deletion" } });
  expect(compute.requested).toEqual([["remove image", "acme.example/team/web:1.2"]]);
  expect(audits).toEqual(["jane@example.net deleted image acme.example/team/web:1.2"]);
});

test("answers for images in use, missing ones and invalid references, without an audit record", async () => {
  const { compute, audits, ask } = stage();
  compute.refusal = new InputError("busy", "web:1 is in use by shop");
  expect(await ask(remove("web/1"))).toEqual({ body: { error: "web:1 is in use by shop" } });
  compute.refusal = new HostError("engine-refused", "conflict");
  expect(await ask(remove("web/1"))).toEqual({ body: { error: "conflict" } });
  for (const image of ["web:1", "/web", "web/"]) {
    expect(await ask(remove(image))).toEqual({ body: { error: expect.stringContaining(image) as string } });
  }
  expect(audits).toEqual([]);
});

test("a stopped engine is a failure", async () => {
  const { compute, ask } = stage();
  compute.refusal = new HostError("engine-unwell", "no socket");
  expect(await ask(remove("web/1"))).toMatchObject({ error: { message: "no socket" } });
});

test.each([{}, { action: "list", image: "a/b" }, { action: "delete" }, { action: "prune" }])(
  "refuses %j",
  async (body) => {
    expect(await stage().ask(body)).toMatchObject({ error: { code: "invalid-body" } });
  },
);

test("an INACTIVE node answers nothing about images", async () => {
  const trigger = containerImage({
    compute: () => new FakeCompute(),
    registryHost: () => undefined,
    audit: () => undefined,
  });
  const { run } = rig([trigger], { node: { type: "Node", state: "INACTIVE" } });
  expect(await run("container-image", { body: { action: "list" } })).toMatchObject({ error: { code: "inactive" } });
});
