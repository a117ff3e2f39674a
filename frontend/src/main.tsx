import "@fontsource-variable/ibm-plex-sans/wght.css";
import "@fontsource/ibm-plex-mono/latin-400.css";
import "./theme/styles.ts";
import "./theme/global.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App.tsx";

const root = document.getElementById("root");
if (!root) throw new Error('The page has no element with id "root" to draw into.');
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
