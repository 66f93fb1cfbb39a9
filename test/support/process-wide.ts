import { beforeAll, expect } from "vitest";

// Test files share their worker's process, so whatever one leaves behind there is met by another, or not, as they happen to be dealt out.
beforeAll(() => {
  const before = processWide();
  return () => expect(processWide(), "a test file leaves its process as it found it").toEqual(before);
});

function processWide() {
  return { umask: process.umask(), directory: process.cwd(), variables: { ...process.env } };
}
