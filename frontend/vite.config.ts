import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const backend = process.env.CONCERTINA_BACKEND ?? "http://127.0.0.1:8000";
const served = ["/api", "/admin", "/static/unfold", "/static/admin", "/healthz", "/readyz"];

export default defineConfig(({ command }) => ({
  plugins: [react()],
  // Django serves the build through whitenoise under /static/; django-vite reads the manifest.
  base: command === "build" ? "/static/" : "/",
  build: {
    outDir: "dist",
    manifest: "manifest.json",
    target: "es2022",
    modulePreload: { polyfill: false },
    rollupOptions: { input: "src/main.tsx" },
  },
  server: {
    host: "127.0.0.1",
    port: 5173,
    strictPort: true,
    proxy: Object.fromEntries(served.map((path) => [path, { target: backend }])),
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    env: { TZ: "UTC" },
  },
}));
