// uPlot as the admin's page uses it: lines over time.
import "uplot/dist/uPlot.min.css";
export { default as Plot } from "uplot";
