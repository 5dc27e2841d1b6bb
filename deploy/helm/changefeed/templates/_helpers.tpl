{{- define "changefeed.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "changefeed.selector" -}}
app.kubernetes.io/name: changefeed
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "changefeed.labels" -}}
{{ include "changefeed.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "changefeed.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "changefeed.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* Helm reads a tag of digits alone as a number. */}}
{{- define "changefeed.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}:{{ if kindIs "float64" $tag }}{{ int64 $tag }}{{ else }}{{ $tag }}{{ end }}
{{- end -}}

{{- define "changefeed.brokers.serviceAccount" -}}
{{- $brokers := printf "%s-brokers" (include "changefeed.name" .) -}}
{{- with .Values.brokers.serviceAccount -}}
{{- .name | default (ternary $brokers "default" .create) -}}
{{- end -}}
{{- end -}}

{{- define "changefeed.account" -}}
serviceAccountName: {{ include "changefeed.serviceAccount" . }}
automountServiceAccountToken: false
{{- end -}}

{{/* What every pod has beside its account: no root, no variables of Services. */}}
{{- define "changefeed.pod" -}}
# Hosts read settings from variables; those that Kubernetes makes of Services are none.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What every container has: the image, which it cannot write, and no rights. */}}
{{- define "changefeed.program" -}}
image: {{ include "changefeed.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{/* Nodes and zones, for a component. */}}
{{- define "changefeed.spread" -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ . }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "changefeed.selector" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
{{- end }}
{{- end -}}

{{- define "changefeed.container" -}}
{{ include "changefeed.program" . }}
ports:
  - { name: http, containerPort: {{ .Values.port }} }
env:
  - { name: CHANGEFEED_CONFIG, value: /etc/changefeed/settings/changefeed.toml }
  - { name: CHANGEFEED_WEB__BIND, value: 0.0.0.0 }
  - { name: CHANGEFEED_WEB__PORT, value: {{ .Values.port | quote }} }
  {{- range $variable, $key := .Values.secretFiles.variables }}
  - { name: {{ $variable }}, value: /etc/changefeed/secrets/{{ $key }} }
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - { name: settings, mountPath: /etc/changefeed/settings, readOnly: true }
  {{- if .Values.secretFiles.secretName }}
  - { name: secrets, mountPath: /etc/changefeed/secrets, readOnly: true }
  {{- end }}
  - { name: tmp, mountPath: /tmp }
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "changefeed.volumes" -}}
- name: settings
  configMap: { name: {{ include "changefeed.name" . }} }
{{- if .Values.secretFiles.secretName }}
- name: secrets
  secret: { secretName: {{ .Values.secretFiles.secretName }}, defaultMode: 0440 }
{{- end }}
- name: tmp
  emptyDir: {}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
