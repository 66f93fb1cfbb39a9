import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { testCertificate } from "../../support/certificates.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { runJob, downloadJob } from "../../support/data-store/transfer-rig.ts";

test.each([{}, { maxBytesPerSecond: 25_000_000 }])(
  "receives a complete file over TLS with the limits %j",
  async (limits) => {
    const body = Buffer.from(Array.from({ length: 4_000_000 }, (_, at) => (at * 31 + (at >> 8)) & 255));
    const authority = await testCertificate({ hosts: [], isAuthority: true });
    const { cert, key } = await testCertificate({ hosts: ["127.0.0.1"], issuer: authority });
    const before = getCACertificates("default");
    onTestFinished(() => setDefaultCACertificates(before));
    setDefaultCACertificates([...before, authority.cert]);
    const server = createServer({ cert, key }, (_request, response) => response.end(body)).listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const root = tempDir();
    const { port } = server.address() as AddressInfo;
    const { events, end } = await runJob(downloadJob(root, `https://127.0.0.1:${port}/`, { limits }));
    expect(end).toEqual({ is: "done", bytes: body.length });
    expect(events.some(({ is }) => is === "retry")).toBe(false);
    expect(readFileSync(join(root, "images/file.img")).equals(body)).toBe(true);
  },
);
