import { createHash } from "node:crypto";
import { sha512Of, type Component } from "./components.ts";

/** A delivered package: its version, runtime and components. */
export interface Delivery {
  /** As `package.version` in the shadow. */
  readonly version: string;
  readonly architecture: string;
  /** Unix seconds. */
  readonly time: number;
  readonly bundleSha256: string;
  readonly runtime: Component & { readonly binarySha256: string };
  readonly packages: readonly Component[];
}

/** The bill of materials as CycloneDX 1.6 (JSON); the same delivery gives the same bytes. */
export function sbomOf(delivery: Delivery): string {
  const { version, architecture, time, runtime } = delivery;
  const self = `pkg:generic/holdfast@${version}?arch=${architecture}`;
  const components = [
    { ...entry(runtime, "platform"), properties: [{ name: "holdfast:binary-sha256", value: runtime.binarySha256 }] },
    ...delivery.packages.map((component) => entry(component, "library")),
  ];
  const bom = {
    metadata: {
      timestamp: new Date(time * 1000).toISOString(),
      component: {
        type: "application",
        "bom-ref": self,
        name: "holdfast",
        version,
        hashes: [{ alg: "SHA-256", content: delivery.bundleSha256 }],
        licenses: [{ license: { id: "Apache-2.0" } }],
        purl: self,
      },
    },
    components,
    dependencies: [
      { ref: self, dependsOn: components.map((component) => component["bom-ref"]) },
      ...components.map((component) => ({ ref: component["bom-ref"] })),
    ],
  };
  const head = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: `urn:uuid:${uuidOf(JSON.stringify(bom))}`,
    version: 1,
  };
  return `${JSON.stringify({ ...head, ...bom }, undefined, 2)}\n`;
}

function entry({ name, version, licence, integrity, purl, folder }: Component, type: "library" | "platform") {
  const [, group, rest] = /^(@[^/]+)\/(.+)$/.exec(name) ?? [];
  return {
    type,
    // Two copies of a package may be there.
    "bom-ref": folder.lastIndexOf("node_modules/") === 0 ? purl : `${purl}#${folder}`,
    ...(group === undefined ? {} : { group }),
    name: rest ?? name,
    version,
    hashes: [{ alg: "SHA-512", content: sha512Of(integrity) }],
    licenses: [{ license: { id: licence } }],
    purl,
  };
}

/** A UUID (version 8, RFC 9562) that says the content. */
function uuidOf(text: string): string {
  const bytes = createHash("sha256").update(text).digest().subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
