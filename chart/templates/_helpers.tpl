{{- /* The hubs, the first one ahead: name, namespace, host (the name of its Service) and base path. */}}
{{- define "gpulease.hubs" -}}
{{- $all := list (merge (dict "name" "") .Values.hub) }}
{{- range $name, $hub := .Values.furtherHubs }}
{{- $all = append $all (merge (dict "name" $name) ($hub | default dict) (dict "namespace" $name)) }}
{{- end }}
{{- $taken := list }}
{{- range $all }}
{{- if eq .namespace $.Release.Namespace }}
{{- fail (printf "Install gpulease in a namespace of its own: where servers run (%s), its admission policies refuse its agents. Give --namespace gpulease-system --create-namespace." .namespace) }}
{{- end }}
{{- if has .namespace $taken }}
{{- fail (printf "Two hubs are in the namespace %s: give each a namespace of its own." .namespace) }}
{{- end }}
{{- $taken = append $taken .namespace }}
{{- $path := trimAll "/" (.baseUrl | default "") }}
- name: {{ .name | quote }}
  namespace: {{ .namespace }}
  host: {{ with .fullnameOverride }}{{ . }}-{{ end }}hub
  base: /{{ with $path }}{{ . }}/{{ end }}
  suffix: "{{ with .name }}-{{ . }}{{ end }}"
  variable: "{{ with .name }}GPULEASE_TOKEN_{{ . | upper | replace "-" "_" }}{{ end }}"
{{- end }}
{{- end }}

{{- /* The tag of our images.  One that says a version has to say the chart's, but for the patch. */}}
{{- define "gpulease.tag" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- $minor := regexFind "^[0-9]+[.][0-9]+[.]" .Chart.AppVersion }}
{{- if and (regexMatch "^v?[0-9]{1,3}[.][0-9]+[.][0-9]+" $tag) (not (hasPrefix $minor (trimPrefix "v" $tag))) }}
{{- fail (printf "image.tag is %s, and this chart is of gpulease %s. Use the chart of your images' version, or images of the chart's." $tag .Chart.AppVersion) }}
{{- end }}
{{- $tag }}
{{- end }}

{{- /* An image of ours, by the last part of its name. */}}
{{- define "gpulease.image" -}}
{{ .root.Values.image.registry }}/gpulease-{{ .name }}:{{ include "gpulease.tag" .root }}
{{- end }}

{{- /* The image of notebook servers. */}}
{{- define "gpulease.serverImage" -}}
{{ .Values.servers.image | default (include "gpulease.image" (dict "root" . "name" "companion")) }}
{{- end }}

{{- /* An image's name without its tag or digest. */}}
{{- define "gpulease.imageName" -}}
{{ regexReplaceAll "(:[^/:@]*)?(@[^@]*)?$" . "" }}
{{- end }}

{{- /* A regular expression (RE2) that takes the words of a list as a whole; * is any text. None is " ". */}}
{{- define "gpulease.expression" -}}
{{- $words := list }}
{{- range . }}
{{- $words = append $words (toString . | regexQuoteMeta | replace "\\*" ".*") }}
{{- end -}}
^(?:{{ join "|" $words | default " " }})$
{{- end }}

{{- define "gpulease.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Who is a pod of gpulease's service, to a network policy of another namespace. */}}
{{- define "gpulease.servicePeer" -}}
namespaceSelector:
  matchLabels:
    kubernetes.io/metadata.name: {{ .Release.Namespace }}
podSelector:
  matchLabels:
    app.kubernetes.io/name: gpulease
    app.kubernetes.io/component: service
{{- end }}

{{- /* What the service's container and that of `helm test` have in common. */}}
{{- define "gpulease.container" -}}
{{- $hubs := include "gpulease.hubs" . | fromYamlArray }}
{{- $hub := first $hubs -}}
image: {{ include "gpulease.image" (dict "root" . "name" "service") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: JUPYTERHUB_SERVICE_NAME
    value: gpulease
  - name: JUPYTERHUB_SERVICE_PREFIX
    value: {{ $hub.base }}services/gpulease/
  - name: JUPYTERHUB_CLIENT_ID
    value: service-gpulease
  - name: JUPYTERHUB_API_URL
    value: http://{{ $hub.host }}.{{ $hub.namespace }}:8081{{ $hub.base }}hub/api
  - name: JUPYTERHUB_BASE_URL
    value: {{ $hub.base }}
  - name: JUPYTERHUB_API_TOKEN
    valueFrom:
      secretKeyRef:
        name: gpulease-service
        key: hub-token
  - name: DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: gpulease-service
        key: database-url
{{- range rest $hubs }}
  - name: {{ .variable }}
    valueFrom:
      secretKeyRef:
        name: gpulease-service
        key: hub-token{{ .suffix }}
{{- end }}
{{- with .Values.service.extraEnv }}
{{ toYaml . | indent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "gpulease.podSecurity" -}}
runAsNonRoot: true
runAsUser: 64100
runAsGroup: 64100
fsGroup: 64100
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}
